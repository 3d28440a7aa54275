#include "request/tool_call_language.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "base/field_error.h"
#include "base/status.h"
#include "constrain/automaton_algebra.h"
#include "constrain/boolean_formula.h"
#include "constrain/byte_nfa.h"
#include "constrain/code_point_set.h"
#include "constrain/json_schema.h"
#include "constrain/regex_language.h"
#include "request/read_json.h"
#include "request/read_json_text.h"

namespace espalier {
namespace {

using State = ByteNfa::State;
using Function = ToolCallRules::Function;

constexpr std::string_view kField = "constraint.tool_calls";
constexpr std::string_view kArgs = "[ARGS]";
constexpr std::string_view kCallId = "[CALL_ID]";
// Longest name that the parser reads in front of [ARGS].
constexpr size_t kMaxHeadNameBytes = 200;

std::string FieldOf(size_t i, std::string_view member) {
  return Concat(kField, ".functions[", i, "].", member);
}

json::value AnyObject() { return json::object{{"type", "object"}}; }

// The present item of `json`, with the bound of its members.
JsonText ItemOf(const JsonText& json, const JsonItems& items) {
  return {.text = items.value(), .max_members = json.max_members};
}

absl::StatusOr<Function> ReadFunction(const std::string& field,
                                      const JsonText& json) {
  if (!json.is_object()) return WrongType(field, "an object", json.text);
  Function function = {.name = "", .parameters = AnyObject()};
  for (JsonItems items(json.text); items.Next();) {
    const JsonText value = ItemOf(json, items);
    const std::string key = Unquoted(items.key());
    const std::string member = NameOfPart(field, key);
    if (value.is_null()) continue;
    if (key == "name") {
      RETURN_IF_ERROR(Read(member, value, &function.name));
    } else if (key == "parameters") {
      ASSIGN_OR_RETURN(function.parameters, ReadAny(member, value));
    } else {
      return InvalidField(FieldName{field}, " must have no field ",
                          ShownInQuotes(key));
    }
  }
  if (!function.name.empty()) return function;
  return InvalidField(FieldName{NameOfPart(field, "name")},
                      " must be a string, and not empty",
                      Got(Shown(json.text)));
}

absl::StatusOr<std::vector<Function>> ReadFunctions(const std::string& field,
                                                    const JsonText& json) {
  if (!json.is_array()) return WrongType(field, "a list", json.text);
  std::vector<Function> functions;
  std::map<std::string, size_t> places;
  for (JsonItems items(json.text); items.Next();) {
    const size_t i = functions.size();
    ASSIGN_OR_RETURN(Function function, ReadFunction(Concat(field, "[", i, "]"),
                                                     ItemOf(json, items)));
    const auto [place, is_new] = places.emplace(function.name, i);
    if (!is_new) {
      return InvalidField(FieldName{Concat(field, "[", i, "]")},
                          ".name must not be that of another one, ",
                          FieldName{Concat(field, "[", place->second, "]")},
                          Got(ShownInQuotes(function.name)));
    }
    functions.push_back(std::move(function));
  }
  if (!functions.empty()) return functions;
  return InvalidField(FieldName{field}, " must not be empty", Got("[]"));
}

// Sets whether there is text, and its schema.
absl::Status ReadText(const std::string& field, const JsonText& json,
                      ToolCallRules* rules) {
  if (!json.is_object()) return Read(field, json, &rules->has_text);
  for (JsonItems items(json.text); items.Next();) {
    const std::string key = Unquoted(items.key());
    if (key != "json_schema") {
      return InvalidField(FieldName{field}, " must have no field ",
                          ShownInQuotes(key));
    }
    ASSIGN_OR_RETURN(rules->text_schema,
                     ReadAny(NameOfPart(field, key), ItemOf(json, items)));
  }
  if (rules->text_schema) return absl::OkStatus();
  return WrongType(field, "true, false, or an object with json_schema",
                   json.text);
}

// Adds the texts of a language to an NFA.
class ToolCallsToNfa {
 public:
  ToolCallsToNfa(const ToolCallRules& rules,
                 std::span<const ToolCallMark> marks, CompileBudget* budget)
      : rules_(rules), marks_(marks), budget_(*budget), nfa_(budget) {}

  absl::StatusOr<ByteAutomaton> Compile() {
    ASSIGN_OR_RETURN(const State start, nfa_.AddState());
    ASSIGN_OR_RETURN(end_, nfa_.AddState());
    switch (rules_.format) {
      case ToolCallFormat::kNone:
        return InvalidArgument("no format has the name \"none\"");
      case ToolCallFormat::kHermes:
        RETURN_IF_ERROR(AddHermes(start));
        break;
      case ToolCallFormat::kLlama3Json:
        RETURN_IF_ERROR(AddLlama3(start));
        break;
      case ToolCallFormat::kMistral:
        RETURN_IF_ERROR(FindMark(kArgs) != nullptr ? AddMistralHeads(start)
                                                   : AddMistralList(start));
        break;
    }
    return std::move(nfa_).Build(start, end_);
  }

 private:
  // Each adds a text after `from`, and returns the state after it.
  absl::StatusOr<State> Text(State from, std::string_view text) {
    for (const char c : text) {
      ASSIGN_OR_RETURN(const State to, nfa_.AddState());
      const auto byte = static_cast<uint8_t>(c);
      RETURN_IF_ERROR(nfa_.AddBytes(from, byte, byte, to));
      from = to;
    }
    return from;
  }
  absl::StatusOr<State> TextOrNone(State from, std::string_view text) {
    ASSIGN_OR_RETURN(const State to, Text(from, text));
    RETURN_IF_ERROR(nfa_.AddEmpty(from, to));
    return to;
  }
  absl::StatusOr<State> Mark(State from, std::string_view spelling) {
    const ToolCallMark* const mark = FindMark(spelling);
    return Text(from,
                mark == nullptr ? spelling : std::string_view(&mark->byte, 1));
  }

  const ToolCallMark* FindMark(std::string_view spelling) const {
    const auto found =
        std::ranges::find(marks_, spelling, &ToolCallMark::spelling);
    return found == marks_.end() ? nullptr : &*found;
  }

  absl::Status AddHermes(State start) {
    constexpr std::string_view kBegin = "<tool_call>", kEnd = "</tool_call>";
    ASSIGN_OR_RETURN(const State begun, BeginCalls(start, kBegin));
    ASSIGN_OR_RETURN(const State call, TextOrNone(begun, "\n"));
    ASSIGN_OR_RETURN(State after, AddObjects(call, "arguments"));
    ASSIGN_OR_RETURN(after, TextOrNone(after, "\n"));
    ASSIGN_OR_RETURN(after, Mark(after, kEnd));
    RETURN_IF_ERROR(nfa_.AddEmpty(after, end_));
    if (!rules_.is_parallel) return absl::OkStatus();
    ASSIGN_OR_RETURN(State next, TextOrNone(after, "\n"));
    ASSIGN_OR_RETURN(next, Mark(next, kBegin));
    return nfa_.AddEmpty(next, begun);
  }

  absl::Status AddLlama3(State start) {
    constexpr std::string_view kBegin = "<|python_tag|>";
    ASSIGN_OR_RETURN(const State call, nfa_.AddState());
    if (rules_.has_text) RETURN_IF_ERROR(AddTextWithoutObject(start, call));
    RETURN_IF_ERROR(nfa_.AddEmpty(start, call));
    if (FindMark(kBegin) != nullptr) {
      ASSIGN_OR_RETURN(const State begun, Mark(start, kBegin));
      RETURN_IF_ERROR(nfa_.AddEmpty(begun, call));
    }
    ASSIGN_OR_RETURN(const State after, AddObjects(call, "parameters"));
    RETURN_IF_ERROR(nfa_.AddEmpty(after, end_));
    if (!rules_.is_parallel) return absl::OkStatus();
    ASSIGN_OR_RETURN(State next, Text(after, ";"));
    ASSIGN_OR_RETURN(next, TextOrNone(next, " "));
    return nfa_.AddEmpty(next, call);
  }

  // [TOOL_CALLS] [{...}, {...}]
  absl::Status AddMistralList(State start) {
    ASSIGN_OR_RETURN(State begun, BeginCalls(start, kToolCalls));
    ASSIGN_OR_RETURN(begun, TextOrNone(begun, " "));
    ASSIGN_OR_RETURN(const State call, Text(begun, "["));
    ASSIGN_OR_RETURN(const State after, AddObjects(call, "arguments"));
    ASSIGN_OR_RETURN(const State closed, Text(after, "]"));
    RETURN_IF_ERROR(nfa_.AddEmpty(closed, end_));
    if (!rules_.is_parallel) return absl::OkStatus();
    ASSIGN_OR_RETURN(State next, Text(after, ","));
    ASSIGN_OR_RETURN(next, TextOrNone(next, " "));
    return nfa_.AddEmpty(next, call);
  }

  // [TOOL_CALLS]f[ARGS]{...}[TOOL_CALLS]g[ARGS]{...}
  absl::Status AddMistralHeads(State start) {
    ASSIGN_OR_RETURN(const State begun, BeginCalls(start, kToolCalls));
    ASSIGN_OR_RETURN(const State after, nfa_.AddState());
    for (size_t i = 0; i < rules_.functions.size(); ++i) {
      RETURN_IF_ERROR(CheckHeadName(i));
      ASSIGN_OR_RETURN(State head, Text(begun, rules_.functions[i].name));
      ASSIGN_OR_RETURN(head, AddCallId(head));
      ASSIGN_OR_RETURN(head, Mark(head, kArgs));
      RETURN_IF_ERROR(AddArguments(i, head, after));
    }
    RETURN_IF_ERROR(nfa_.AddEmpty(after, end_));
    if (!rules_.is_parallel) return absl::OkStatus();
    ASSIGN_OR_RETURN(const State next, Mark(after, kToolCalls));
    return nfa_.AddEmpty(next, begun);
  }

  // Models of one version write an id of nine letters and digits.
  absl::StatusOr<State> AddCallId(State from) {
    if (FindMark(kCallId) == nullptr) return from;
    ASSIGN_OR_RETURN(State id, Mark(from, kCallId));
    for (int i = 0; i < 9; ++i) {
      ASSIGN_OR_RETURN(const State next, nfa_.AddState());
      RETURN_IF_ERROR(nfa_.AddBytes(id, '0', '9', next));
      RETURN_IF_ERROR(nfa_.AddBytes(id, 'A', 'Z', next));
      RETURN_IF_ERROR(nfa_.AddBytes(id, 'a', 'z', next));
      id = next;
    }
    RETURN_IF_ERROR(nfa_.AddEmpty(from, id));
    return id;
  }

  absl::Status CheckHeadName(size_t i) const {
    const std::string& name = rules_.functions[i].name;
    const auto is_word = [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
             (c >= 'a' && c <= 'z') || c == '_';
    };
    const bool is_good = is_word(name[0]) && name.size() <= kMaxHeadNameBytes &&
                         std::ranges::all_of(name, [&](char c) {
                           return is_word(c) || c == '-' || c == '.';
                         });
    if (is_good) return absl::OkStatus();
    return InvalidField(FieldName{FieldOf(i, "name")},
                        " must have letters, digits, \"_\", \"-\" and "
                        "\".\", begin with none of the last two, and have at "
                        "most ",
                        Limit(kMaxHeadNameBytes),
                        " bytes in the format of this model's calls",
                        Got(ShownInQuotes(name)));
  }

  // Adds {"name": NAME, KEY: ARGUMENTS} of each function after `from`.
  absl::StatusOr<State> AddObjects(State from, std::string_view key) {
    ASSIGN_OR_RETURN(State name, Text(from, "{\"name\":"));
    ASSIGN_OR_RETURN(name, TextOrNone(name, " "));
    ASSIGN_OR_RETURN(const State after, nfa_.AddState());
    for (size_t i = 0; i < rules_.functions.size(); ++i) {
      std::string quoted;
      AppendJson(std::string_view(rules_.functions[i].name), &quoted);
      ASSIGN_OR_RETURN(State head, Text(name, Concat(quoted, ",")));
      ASSIGN_OR_RETURN(head, TextOrNone(head, " "));
      ASSIGN_OR_RETURN(head, Text(head, Concat("\"", key, "\":")));
      ASSIGN_OR_RETURN(head, TextOrNone(head, " "));
      RETURN_IF_ERROR(AddArguments(i, head, after));
    }
    return Text(after, "}");
  }

  // `to` is the same of all functions.
  absl::Status AddArguments(size_t i, State from, State to) {
    const absl::Status added = AddObjectOf(i, from, to);
    if (added.ok()) return added;
    return InvalidField(FieldName{FieldOf(i, "parameters")}, ": ",
                        Message(added));
  }

  absl::Status AddObjectOf(size_t i, State from, State to) {
    const json::value& schema = rules_.functions[i].parameters;
    const auto [found, is_new] = objects_.try_emplace(WriteJson(schema), from);
    if (!is_new) return nfa_.AddEmpty(from, found->second);
    ASSIGN_OR_RETURN(const ByteAutomaton values,
                     CompileJsonSchema(schema, {}, &budget_));
    const AutomatonRanges objects = ObjectsOf(values);
    const bool has_object = std::ranges::any_of(
        objects.edges, [](const AutomatonRanges::Edge& edge) {
          return edge.from == ByteAutomaton::kStart;
        });
    if (!has_object)
      return InvalidArgument("#: no object satisfies the schema");
    return AddAutomaton(objects, from, to, &nfa_);
  }

  // The texts of `values` that begin with "{": arguments are an object.
  static AutomatonRanges ObjectsOf(const ByteAutomaton& values) {
    AutomatonRanges objects(values);
    std::erase_if(objects.edges, [](const AutomatonRanges::Edge& edge) {
      return edge.from == ByteAutomaton::kStart &&
             (edge.last < '{' || edge.first > '{');
    });
    for (AutomatonRanges::Edge& edge : objects.edges) {
      if (edge.from == ByteAutomaton::kStart) edge.first = edge.last = '{';
    }
    return objects;
  }

  // Adds what comes up to the first call, whose mark it is, and returns the
  // state behind that.
  absl::StatusOr<State> BeginCalls(State start, std::string_view mark) {
    if (rules_.text_schema) RETURN_IF_ERROR(AddJsonWithout(mark, start));
    if (!rules_.has_text) return Mark(start, mark);
    ASSIGN_OR_RETURN(const State begun, nfa_.AddState());
    RETURN_IF_ERROR(AddTextUpTo(mark, start, begun));
    return begun;
  }

  // Adds JSON of the schema of texts without `mark`.
  absl::Status AddJsonWithout(std::string_view mark, State start) {
    const absl::StatusOr<ByteAutomaton> texts = JsonWithout(mark);
    if (texts.ok()) {
      return AddAutomaton(AutomatonRanges(*texts), start, end_, &nfa_);
    }
    return InvalidField(FieldName{Concat(kField, ".text.json_schema")}, ": ",
                        Message(texts.status()));
  }

  absl::StatusOr<ByteAutomaton> JsonWithout(std::string_view mark) {
    ASSIGN_OR_RETURN(const ByteAutomaton values,
                     CompileJsonSchema(*rules_.text_schema, {}, &budget_));
    std::string pattern;
    for (const char c : mark) {
      if (c == '[' || c == ']') pattern += '\\';
      pattern += c;
    }
    ASSIGN_OR_RETURN(const ByteAutomaton with_mark,
                     CompileRegex(pattern, RegexMatching::kSearch, &budget_));
    const ByteAutomaton* const others[] = {&with_mark};
    const auto has_none = [](std::span<const Truth> has_mark) {
      if (has_mark[0] == Truth::kUnknown) return Truth::kUnknown;
      return has_mark[0] == Truth::kTrue ? Truth::kFalse : Truth::kTrue;
    };
    ASSIGN_OR_RETURN(std::optional<ByteAutomaton> texts,
                     CombineAutomata(values, others, has_none, &budget_));
    if (texts) return *std::move(texts);
    return InvalidArgument("#: each value has ", mark, " in its text");
  }

  // Adds any text without `mark`, whose first character it has once, and that
  // mark: a state for each number of its characters that the text ends with.
  absl::Status AddTextUpTo(std::string_view mark, State start, State begun) {
    std::vector<State> matched = {start};
    while (matched.size() < mark.size()) {
      ASSIGN_OR_RETURN(matched.emplace_back(), nfa_.AddState());
    }
    const ToolCallMark* const special = FindMark(mark);
    for (size_t i = 0; i < matched.size(); ++i) {
      RETURN_IF_ERROR(nfa_.AddEmpty(matched[i], end_));
      if (special != nullptr) {
        const auto byte = static_cast<uint8_t>(special->byte);
        RETURN_IF_ERROR(nfa_.AddBytes(matched[i], byte, byte, begun));
      }
      std::set<char> others = {mark[i], mark[0]};
      if (i + 1 < mark.size()) {
        RETURN_IF_ERROR(AddChar(matched[i], mark[i], matched[i + 1]));
      } else if (special == nullptr) {
        RETURN_IF_ERROR(AddChar(matched[i], mark[i], begun));
      }
      if (i > 0) RETURN_IF_ERROR(AddChar(matched[i], mark[0], matched[1]));
      RETURN_IF_ERROR(AddCharsWithout(others, matched[i], matched[0]));
    }
    return absl::OkStatus();
  }

  // Adds any text that does not begin with "{" or a spelt mark, behind white
  // space, and white space alone up to `call`.
  absl::Status AddTextWithoutObject(State start, State call) {
    constexpr std::string_view kBegin = "<|python_tag|>";
    ASSIGN_OR_RETURN(const State spaces, nfa_.AddState());
    ASSIGN_OR_RETURN(const State any, nfa_.AddState());
    RETURN_IF_ERROR(nfa_.AddEmpty(start, spaces));
    for (const char c : kSpaces) RETURN_IF_ERROR(AddChar(spaces, c, spaces));
    RETURN_IF_ERROR(nfa_.AddEmpty(spaces, call));
    if (FindMark(kBegin) != nullptr) {
      ASSIGN_OR_RETURN(const State begun, Mark(spaces, kBegin));
      RETURN_IF_ERROR(nfa_.AddEmpty(begun, call));
    }
    std::set<char> others(kSpaces.begin(), kSpaces.end());
    others.insert('{');
    State matched = spaces;
    for (const char c : kBegin) {
      RETURN_IF_ERROR(nfa_.AddEmpty(matched, end_));
      others.insert(c);
      RETURN_IF_ERROR(AddCharsWithout(others, matched, any));
      ASSIGN_OR_RETURN(const State next, nfa_.AddState());
      RETURN_IF_ERROR(AddChar(matched, c, next));
      matched = next;
      others.clear();
    }
    if (FindMark(kBegin) == nullptr) {
      RETURN_IF_ERROR(nfa_.AddEmpty(matched, call));
    }
    RETURN_IF_ERROR(nfa_.AddEmpty(any, end_));
    return AddCharsWithout({}, any, any);
  }

  absl::Status AddChar(State from, char c, State to) {
    const auto byte = static_cast<uint8_t>(c);
    return nfa_.AddBytes(from, byte, byte, to);
  }

  // `others` are ASCII.
  absl::Status AddCharsWithout(const std::set<char>& others, State from,
                               State to) {
    std::vector<CodePointSet::Range> ranges;
    for (const char c : others) {
      const auto point = static_cast<char32_t>(c);
      ranges.push_back({point, point});
    }
    return CodePointSet::Of(std::move(ranges))
        .Complement()
        .AddTo(&nfa_, from, to);
  }

  static constexpr std::string_view kToolCalls = "[TOOL_CALLS]";
  static constexpr std::string_view kSpaces = " \t\r\n";

  const ToolCallRules& rules_;
  const std::span<const ToolCallMark> marks_;
  CompileBudget& budget_;
  ByteNfa nfa_;
  State end_ = 0;
  std::map<std::string, State> objects_;  // where they begin, by the schema
};

}  // namespace

absl::StatusOr<ToolCallRules> ReadToolCallRules(std::string_view field,
                                                const JsonText& json) {
  if (!json.is_object()) return WrongType(field, "an object", json.text);
  ToolCallRules rules;
  std::string format;
  for (JsonItems items(json.text); items.Next();) {
    const JsonText value = ItemOf(json, items);
    const std::string key = Unquoted(items.key());
    const std::string member = NameOfPart(field, key);
    if (value.is_null()) continue;
    if (key == "format") {
      RETURN_IF_ERROR(Read(member, value, &format));
    } else if (key == "functions") {
      ASSIGN_OR_RETURN(rules.functions, ReadFunctions(member, value));
    } else if (key == "text") {
      RETURN_IF_ERROR(ReadText(member, value, &rules));
    } else if (key == "parallel") {
      RETURN_IF_ERROR(Read(member, value, &rules.is_parallel));
    } else {
      return InvalidField(FieldName{field}, " must have no field ",
                          ShownInQuotes(key));
    }
  }
  rules.format = ToolCallFormatNamed(format).value_or(ToolCallFormat::kNone);
  if (rules.format == ToolCallFormat::kNone) {
    return InvalidField(
        FieldName{NameOfPart(field, "format")},
        " must be \"hermes\", \"llama3_json\" or \"mistral\"",
        Got(format.empty() ? "nothing" : ShownInQuotes(format)));
  }
  if (rules.text_schema && rules.format == ToolCallFormat::kLlama3Json) {
    return InvalidField(FieldName{NameOfPart(field, "text")},
                        " must be true or false with llama3_json, whose calls "
                        "are JSON, too",
                        Got("a schema"));
  }
  if (!rules.functions.empty()) return rules;
  return InvalidField(FieldName{NameOfPart(field, "functions")},
                      " must be a list of functions", Got("nothing"));
}

absl::StatusOr<ByteAutomaton> CompileToolCalls(
    const ToolCallRules& rules, std::span<const ToolCallMark> marks,
    const CompileLimits& limits) {
  CompileBudget budget(limits);
  return ToolCallsToNfa(rules, marks, &budget).Compile();
}

}  // namespace espalier
