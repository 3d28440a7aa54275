// The languages of calls of tools, against the parser of calls.
#include "request/tool_call_language.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "constrain/json_schema.h"
#include "constrain/sample_text.h"
#include "constrain/token_constraint.h"
#include "request/read_json_text.h"
#include "request/token_bytes.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"
#include "tests/text/tokenizer_file.h"
#include "text/chat/tool_call_parser.h"
#include "text/chat/tool_call_stream.h"
#include "text/tokenizer/incremental_detokenizer.h"

namespace espalier {
namespace {

using ::espalier::testing::Cases;
using ::espalier::testing::StatusIs;
using ::espalier::testing::TokenizerFile;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr ToolCallFormat kFormats[] = {ToolCallFormat::kHermes,
                                       ToolCallFormat::kLlama3Json,
                                       ToolCallFormat::kMistral};

// Marks that are special tokens, in some models.
const std::vector<std::vector<ToolCallMark>> kMarks = {
    {},
    {{1, "<tool_call>", '\xFF'},
     {2, "</tool_call>", '\xFE'},
     {3, "<|python_tag|>", '\xFD'},
     {4, "[TOOL_CALLS]", '\xFC'}},
    {{4, "[TOOL_CALLS]", '\xFC'}, {6, "[ARGS]", '\xFA'}},
    {{4, "[TOOL_CALLS]", '\xFC'},
     {5, "[CALL_ID]", '\xFB'},
     {6, "[ARGS]", '\xFA'}}};

constexpr std::string_view kSchemas[] = {
    R"({"type": "object"})",
    R"({"type": "object", "properties": {}, "additionalProperties": false})",
    R"({"type": "object", "required": ["x"], "additionalProperties": false,
        "properties": {"x": {"type": "string", "maxLength": 3},
                       "y": {"enum": ["</tool_call>", "{\"name\": \"f\"}", 1]}}})",
    R"({"$ref": "#/$defs/point", "$defs": {"point": {"type": "object",
        "required": ["x", "y"], "additionalProperties": false,
        "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}}}})",
    R"({"anyOf": [{"type": "integer"}, {"type": "object", "maxProperties": 1,
        "additionalProperties": {"type": "boolean"}}]})"};

// Some are prefixes of others.
constexpr std::string_view kNames[] = {
    "f", "fg", "f-g", "get_weather", "get_weather.v2", "_", "7"};
constexpr std::string_view kWildNames[] = {
    "f\"", "f", "{", "}}", "é", "</tool_call>", "[ARGS]", "\\", "a b", "\n"};

// The text that a parser gets: marks are spelled.
std::string Spelled(std::string_view text,
                    const std::vector<ToolCallMark>& marks) {
  std::string spelled;
  for (const char c : text) {
    const auto mark = std::ranges::find(marks, c, &ToolCallMark::byte);
    if (mark == marks.end()) {
      spelled += c;
    } else {
      spelled += mark->spelling;
    }
  }
  return spelled;
}

std::vector<std::string> NamesOf(const ToolCallRules& rules) {
  std::vector<std::string> names;
  for (const auto& function : rules.functions) names.push_back(function.name);
  return names;
}

class ToolCallLanguageTest : public ::testing::Test {
 protected:
  // Draws rules; `wild` names cannot be in front of [ARGS].
  ToolCallRules RandomRules(ToolCallFormat format, bool wild) {
    ToolCallRules rules = {.format = format,
                           .has_text = Draw(2) == 1,
                           .is_parallel = Draw(2) == 1};
    const size_t num_functions = 1 + Draw(4);
    while (rules.functions.size() < num_functions) {
      const std::string name(wild ? kWildNames[Draw(std::size(kWildNames))]
                                  : kNames[Draw(std::size(kNames))]);
      const auto names = NamesOf(rules);
      if (std::ranges::find(names, name) != names.end()) continue;
      rules.functions.push_back(
          {name, *ParseJson(kSchemas[Draw(std::size(kSchemas))])});
    }
    return rules;
  }
  size_t Draw(size_t n) { return random_() % n; }

  // Checks that a text of the language is what it should be.
  void Check(std::string_view text, const ToolCallRules& rules) {
    const ToolCallText found =
        ParseToolCalls(text, rules.format, NamesOf(rules));
    const size_t num_calls = found.calls.size();
    if (!rules.has_text) {
      EXPECT_GE(num_calls, 1u) << text;
      EXPECT_EQ(found.content, "") << text;
    }
    if (!rules.is_parallel) {
      EXPECT_LE(num_calls, 1u) << text;
    }
    if (num_calls == 0) {
      EXPECT_EQ(found.content, text);
    }
    for (const ToolCallPart& call : found.calls) {
      const auto function = std::ranges::find(rules.functions, call.name,
                                              &ToolCallRules::Function::name);
      ASSERT_NE(function, rules.functions.end()) << text;
      const ByteAutomaton schema = *CompileJsonSchema(function->parameters);
      EXPECT_TRUE(schema.Match(call.arguments).in_language) << text;
      const auto arguments = ParseJson(call.arguments);
      EXPECT_TRUE(arguments.ok() && arguments->is_object()) << text;
    }
  }

  std::mt19937_64 random_{7};
};

TEST_F(ToolCallLanguageTest, TextsOfTheLanguageAreCallsThatSatisfyTheSchemas) {
  int num_mutated = 0;
  for (int i = 0; i < Cases(60, 10); ++i) {
    const ToolCallFormat format = kFormats[Draw(3)];
    const auto& marks = kMarks[Draw(kMarks.size())];
    const bool has_heads = format == ToolCallFormat::kMistral &&
                           marks.size() < 4 && !marks.empty();
    const ToolCallRules rules = RandomRules(format, !has_heads && Draw(2) == 0);
    const auto language = CompileToolCalls(rules, marks);
    ASSERT_OK(language);
    for (int k = 0; k < 20; ++k) {
      std::string text = SampleText(*language, Draw(200), &random_);
      Check(Spelled(text, marks), rules);
      // A changed text that is in the language satisfies it, too.
      for (int m = 0; m < 20 && !text.empty(); ++m) {
        std::string other = text;
        const size_t at = Draw(other.size());
        switch (Draw(3)) {
          case 0:
            other[at] = "{}[],:\"\\ a1<\n;"[Draw(14)];
            break;
          case 1:
            other.erase(at, 1 + Draw(3));
            break;
          default:
            other.insert(at, other.substr(Draw(other.size()), 1 + Draw(9)));
        }
        if (!language->Match(other).in_language) continue;
        ++num_mutated;
        Check(Spelled(other, marks), rules);
      }
    }
  }
  EXPECT_GT(num_mutated, 0);
}

TEST_F(ToolCallLanguageTest, CallsAsTemplatesWriteThemAreInTheLanguage) {
  const auto write = [](ToolCallFormat format, bool has_heads, bool is_first,
                        std::string_view name, std::string_view arguments) {
    std::string quoted;
    AppendJson(name, &quoted);
    switch (format) {
      case ToolCallFormat::kHermes:
        return Concat(is_first ? "" : "\n", "<tool_call>\n{\"name\": ", quoted,
                      ", \"arguments\": ", arguments, "}\n</tool_call>");
      case ToolCallFormat::kLlama3Json:
        return Concat(is_first ? "" : "; ", "{\"name\": ", quoted,
                      ", \"parameters\": ", arguments, "}");
      default:
        if (has_heads) {
          return Concat("[TOOL_CALLS]", name, "[ARGS]", arguments);
        }
        return Concat(is_first ? "[TOOL_CALLS] [" : ", ", "{\"name\": ", quoted,
                      ", \"arguments\": ", arguments, "}");
    }
  };
  // Marks as their bytes.
  const auto coded = [](std::string text,
                        const std::vector<ToolCallMark>& marks) {
    for (const ToolCallMark& mark : marks) {
      for (size_t at = 0; (at = text.find(mark.spelling, at)) != text.npos;) {
        text.replace(at, mark.spelling.size(), 1, mark.byte);
      }
    }
    return text;
  };
  for (int i = 0; i < Cases(100, 10); ++i) {
    const ToolCallFormat format = kFormats[Draw(3)];
    const auto& marks = kMarks[Draw(kMarks.size())];
    const bool has_heads = format == ToolCallFormat::kMistral &&
                           marks.size() < 4 && !marks.empty();
    ToolCallRules rules = RandomRules(format, false);
    rules.is_parallel = true;
    const ByteAutomaton language = *CompileToolCalls(rules, marks);
    const bool has_list = format == ToolCallFormat::kMistral && !has_heads;
    std::string text;
    if (rules.has_text && Draw(2) == 0) text = "Ça va: a {\"name\"} <tool";
    const size_t num_calls = 1 + Draw(3);
    if (format == ToolCallFormat::kLlama3Json) text = "";
    for (size_t k = 0; k < num_calls; ++k) {
      const auto& [name, schema] =
          rules.functions[Draw(rules.functions.size())];
      const ByteAutomaton values = *CompileJsonSchema(schema);
      std::string arguments;
      while (!arguments.starts_with('{')) {
        arguments = SampleText(values, 30, &random_);
      }
      // Strings of the schemas have marks of Hermes, which are no tokens there.
      if (arguments.find("tool_call>") != arguments.npos && !marks.empty()) {
        arguments = "";
        break;
      }
      text += write(format, has_heads, k == 0, name, arguments);
      if (k + 1 == num_calls) {
        if (has_list) text += "]";
        EXPECT_TRUE(language.Match(coded(text, marks)).in_language) << text;
      }
    }
  }
}

TEST_F(ToolCallLanguageTest, TextBeforeCallsHasNoMark) {
  ToolCallRules rules = {.functions = {{"f", *ParseJson(kSchemas[1])}},
                         .has_text = true};
  const auto in = [&](const ByteAutomaton& language, std::string_view text) {
    return language.Match(text).in_language;
  };
  constexpr std::string_view kCall =
      "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
  const ByteAutomaton spelled = *CompileToolCalls(rules, {});
  EXPECT_TRUE(in(spelled, ""));
  EXPECT_TRUE(in(spelled, "<tool_<tool_call"));
  EXPECT_TRUE(in(spelled, Concat("<tool_<é", kCall)));
  EXPECT_FALSE(in(spelled, "a <tool_call>"));
  EXPECT_FALSE(in(spelled, Concat(kCall, "a")));
  EXPECT_FALSE(in(spelled, "\xC3"));
  const ByteAutomaton special = *CompileToolCalls(rules, kMarks[1]);
  EXPECT_FALSE(in(special, kCall));
  EXPECT_TRUE(in(special, "a\xFF{\"name\":\"f\",\"arguments\":{}}\xFE"));
  EXPECT_FALSE(in(special, "a\xFE"));
  rules.format = ToolCallFormat::kLlama3Json;
  const ByteAutomaton llama = *CompileToolCalls(rules, kMarks[1]);
  EXPECT_TRUE(in(llama, "a {\xC3\xA9 <|python_tag|>"));
  EXPECT_TRUE(in(llama, " \n{\"name\":\"f\",\"parameters\":{}}"));
  EXPECT_TRUE(in(llama, " \xFD{\"name\":\"f\",\"parameters\":{}}"));
  EXPECT_FALSE(in(llama, " {"));
  EXPECT_FALSE(in(llama, "<|python_tag|>{\"name\":\"f\",\"parameters\":{}}"));
  EXPECT_FALSE(in(llama, "a\xFD"));
}

// A tokenizer of ASCII, with special tokens.
std::unique_ptr<Tokenizer> TokenizerWith(
    const std::vector<std::string_view>& special) {
  TokenizerFile file;
  json::object& vocab = file.At("/model/vocab").as_object();
  int64_t id = 10;
  for (char c = '!'; c <= '~'; ++c) {
    if (vocab.emplace(std::string(1, c), id).second) ++id;
  }
  for (const std::string_view content : special) {
    file.At("/added_tokens")
        .as_array()
        .push_back(json::object{{"id", id++},
                                {"content", content},
                                {"special", true},
                                {"normalized", false}});
  }
  return *file.Parse();
}

TEST_F(ToolCallLanguageTest, TokensOfMarksAreThoseThatAnswersAreReadBy) {
  const std::pair<ToolCallFormat, std::vector<std::string_view>> kModels[] = {
      {ToolCallFormat::kHermes, {}},
      {ToolCallFormat::kHermes, {"<tool_call>", "</tool_call>"}},
      {ToolCallFormat::kLlama3Json, {"<|python_tag|>"}},
      {ToolCallFormat::kMistral, {"[TOOL_CALLS]"}},
      {ToolCallFormat::kMistral, {"[TOOL_CALLS]", "[ARGS]"}},
      {ToolCallFormat::kMistral, {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"}}};
  for (const auto& [format, special] : kModels) {
    const auto tokenizer = TokenizerWith(special);
    const auto marks = SpecialMarksOf(format, *tokenizer);
    ASSERT_EQ(marks.size(), special.size());
    ToolCallRules rules = {
        .format = format,
        .functions = {{"f", *ParseJson(kSchemas[1])},
                      {"fg", *ParseJson(R"({"type": "object", "required": ["a"],
                          "additionalProperties": false, "properties":
                          {"a": {"enum": ["[ARGS]", "</tool_call>", 7]}}})")}}};
    for (int i = 0; i < Cases(40, 10); ++i) {
      rules.is_parallel = i % 2 == 0;
      const auto texts = TokenConstraint::Make(
          std::make_shared<const ByteAutomaton>(
              *CompileToolCalls(rules, marks)),
          std::make_shared<const TokenVocabulary>(
              TokenBytesOf(*tokenizer, {}, 1000, SpecialMarksOf(*tokenizer))));
      ASSERT_OK(texts);
      ToolCallStream stream({format, NamesOf(rules)}, *tokenizer,
                            IncrementalDetokenizer(*tokenizer));
      IncrementalDetokenizer detokenizer(*tokenizer);
      ToolCallText found;
      std::vector<TokenId> legal;
      auto state = texts->start();
      bool is_marked = false;
      while (!texts->ends(state) && !(texts->accepts(state) && Draw(2) == 0)) {
        texts->LegalTokens(state, &legal);
        const TokenId token = legal[Draw(legal.size())];
        is_marked |= std::ranges::find(marks, token, &ToolCallMark::token) !=
                     marks.end();
        state = texts->Advance(state, token);
        std::string text;
        detokenizer.Feed(token, &text);
        stream.Feed({&token, 1}, text, &found);
      }
      stream.Finish(&found);
      EXPECT_EQ(found.content, "");
      EXPECT_FALSE(found.calls.empty());
      for (const ToolCallPart& call : found.calls) {
        if (call.name.empty()) continue;
        EXPECT_TRUE(call.name == "f" || call.name == "fg") << call.name;
      }
      if (format != ToolCallFormat::kLlama3Json && !special.empty()) {
        EXPECT_TRUE(is_marked);
      }
    }
  }
}

TEST_F(ToolCallLanguageTest, JsonInPlaceOfCallsHasNoMark) {
  const std::vector<std::string_view> begins = {"<tool_call>", "[TOOL_CALLS]"};
  for (const ToolCallFormat format :
       {ToolCallFormat::kHermes, ToolCallFormat::kMistral}) {
    const ToolCallRules rules = {
        .format = format,
        .functions = {{"f", *ParseJson(kSchemas[1])}},
        .text_schema = *ParseJson(R"({"type": "object", "required": ["a"],
            "additionalProperties": false,
            "properties": {"a": {"type": "string"}}})")};
    for (const auto& marks : {kMarks[0], kMarks[1]}) {
      const auto language = CompileToolCalls(rules, marks);
      ASSERT_OK(language);
      const auto in = [&](std::string_view text) {
        return language->Match(text).in_language;
      };
      EXPECT_TRUE(in(R"({"a": "x <tool [TOOL_CALLS"})"));
      EXPECT_TRUE(in(R"({"a": "</tool_call>"})"));
      const bool is_hermes = format == ToolCallFormat::kHermes;
      EXPECT_FALSE(in(Concat("{\"a\": \"", begins[is_hermes ? 0 : 1], "\"}")));
      EXPECT_TRUE(in(Concat("{\"a\": \"", begins[is_hermes ? 1 : 0], "\"}")));
      EXPECT_FALSE(in("{}"));
      EXPECT_FALSE(in(""));
      bool has_call = false;
      for (int i = 0; i < 200; ++i) {
        const std::string text =
            Spelled(SampleText(*language, 40, &random_), marks);
        const ToolCallText found = ParseToolCalls(text, format, {"f"});
        has_call |= !found.calls.empty();
        if (found.calls.empty()) {
          EXPECT_EQ(found.content, text);
        } else {
          EXPECT_EQ(found.content, "");
        }
      }
      // Samples are of printable bytes, which bytes of marks are not.
      EXPECT_EQ(has_call, marks.empty());
    }
  }
}

TEST_F(ToolCallLanguageTest, ErrorsNameTheFunction) {
  const auto compile = [](std::vector<std::pair<std::string, std::string>> of,
                          ToolCallFormat format = ToolCallFormat::kHermes,
                          size_t marks = 0) {
    ToolCallRules rules = {.format = format};
    for (auto& [name, schema] : of) {
      rules.functions.push_back({name, *ParseJson(schema)});
    }
    return CompileToolCalls(rules, kMarks[marks]).status();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(
      compile(
          {{"f", "{}"}, {"g", R"({"properties": {"a": {"pattern": "("}}})"}}),
      StatusIs(kInvalid, StartsWith("constraint.tool_calls.functions[1]."
                                    "parameters: #/properties/a/pattern: ")));
  EXPECT_THAT(
      compile({{"f", R"({"type": "array"})"}}),
      StatusIs(kInvalid, HasSubstr("[0].parameters: #: no object satisfies")));
  EXPECT_THAT(compile({{"f", "[]"}}),
              StatusIs(kInvalid, HasSubstr("functions[0].parameters: #")));
  EXPECT_THAT(
      compile({{"f", R"({"type": "object", "required": ["a"],
                    "properties": {"a": {
                    "type": "string", "minLength": 10, "maxLength": 5}}})"}}),
      StatusIs(kInvalid,
               AllOf(HasSubstr("functions[0].parameters: #"),
                     HasSubstr("minLength 10 at #/properties/a is above "
                               "maxLength 5"))));
  EXPECT_OK(compile({{"a b", "{}"}}, ToolCallFormat::kMistral));
  for (const std::string name : {"a b", "-a", ".", "a[", "é"}) {
    EXPECT_THAT(
        compile({{"f", "{}"}, {name, "{}"}}, ToolCallFormat::kMistral, 2),
        StatusIs(kInvalid, HasSubstr("functions[1].name must have")));
  }
  std::vector<std::pair<std::string, std::string>> many;
  for (int i = 0; i < 300; ++i) {
    many.emplace_back(Concat("f", i),
                      Concat(R"({"required": ["a)", i, R"("]})"));
  }
  EXPECT_THAT(compile(many), StatusIs(kInvalid, HasSubstr("the limit")));
}

TEST_F(ToolCallLanguageTest, RulesAreReadByMember) {
  const auto read = [](std::string_view json) {
    return ReadToolCallRules("constraint.tool_calls", {json});
  };
  EXPECT_THAT(
      ReadToolCallRules(
          "constraint.tool_calls",
          {.text = R"({"functions": [{"name": "f", "parameters": {}}]})",
           .max_members = kMaxMembers + 1}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("functions[0].parameters")));
  ASSERT_OK_AND_ASSIGN(const ToolCallRules rules,
                       read(R"({"functions": [{"name": "f"}], "text": true,
                                "parallel": false, "format": "mistral"})"));
  EXPECT_EQ(rules.format, ToolCallFormat::kMistral);
  EXPECT_TRUE(rules.has_text);
  EXPECT_FALSE(rules.is_parallel);
  EXPECT_EQ(rules.functions.at(0).parameters,
            json::value({{"type", "object"}}));
  const std::pair<std::string_view, std::string_view> kBad[] = {
      {"[]", "constraint.tool_calls must be an object"},
      {R"({"functions": [{"name": "f"}]})", ".format must be \"hermes\""},
      {R"({"format": "none", "functions": [{"name": "f"}]})",
       ".format must be \"hermes\""},
      {R"({"format": "hermes"})", ".functions must be a list of functions"},
      {R"({"format": "hermes", "functions": []})", ".functions must not be"},
      {R"({"format": "hermes", "functions": [{}]})", ".functions[0].name must"},
      {R"({"format": "hermes", "functions": [{"name": "f", "x": 1}]})",
       ".functions[0] must have no field \"x\""},
      {R"({"format": "hermes", "functions": [{"name": "f"}, {"name": "f"}]})",
       ".functions[1].name must not be that of another one"},
      {R"({"format": "hermes", "text": {}})", ".text must be true, false"},
      {R"({"format": "hermes", "text": {"x": 1}})",
       ".text must have no field \"x\""},
      {R"({"format": "llama3_json", "text": {"json_schema": {}},
           "functions": [{"name": "f"}]})",
       ".text must be true or false with llama3_json"},
      {R"({"x": 1})", "must have no field \"x\""}};
  for (const auto& [json, message] : kBad) {
    EXPECT_THAT(read(json), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr(message)));
  }
}

}  // namespace
}  // namespace espalier
