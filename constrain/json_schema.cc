#include "constrain/json_schema.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "constrain/automaton_algebra.h"
#include "constrain/byte_nfa.h"
#include "constrain/json_assertions.h"
#include "constrain/json_keywords.h"
#include "constrain/json_machine.h"
#include "constrain/json_schema_bounds.h"
#include "constrain/json_schema_keys.h"
#include "constrain/json_schema_reader.h"
#include "constrain/json_string_language.h"
#include "constrain/json_whitespace.h"
#include "constrain/shared_language.h"

namespace espalier {
namespace {

// Values may nest so deep; each level is one of recursion.
constexpr int kMaxNesting = 100;
constexpr int64_t kManyLengths = int64_t{1} << 31;
constexpr int kStatesOfString = 8;  // any string has them

using NfaState = ByteNfa::State;

// Makes automata of shapes.
class JsonSchemaCompiler {
 public:
  //   max_unrolled_length  as of JsonAssertions; strings with greater lengths
  //                        have a counter, in CompileWithCalls
  //   max_unrolled_least   the same of least lengths
  JsonSchemaCompiler(JsonSchemaDocument* document, CompileBudget* budget,
                     const JsonSchemaOptions& options,
                     int64_t max_unrolled_length = JsonAssertions::kNoMaxLength,
                     int64_t max_unrolled_least = JsonAssertions::kNoMaxLength)
      : document_(*document),
        budget_(*budget),
        options_(options),
        assertions_(budget, max_unrolled_length, max_unrolled_least),
        bounds_(document, budget),
        keys_(document, &assertions_),
        reader_(document, &assertions_, &bounds_),
        builder_(&reader_, &bounds_, &keys_, &assertions_) {}

  absl::StatusOr<ByteAutomaton> Compile() {
    RETURN_IF_ERROR(ReadWhitespace());
    const Formula root = assertions_.Schema(JsonSchemaDocument::kRoot);
    RETURN_IF_ERROR(Explore(root, 0));
    return CompileUnrolled(root);
  }

  absl::StatusOr<GrammarLanguage> CompileWithCalls() {
    RETURN_IF_ERROR(ReadWhitespace());
    const Formula root = assertions_.Schema(JsonSchemaDocument::kRoot);
    RETURN_IF_ERROR(Explore(root, 0));
    const int64_t steps_left = budget_.steps_left();
    RETURN_IF_ERROR(FindCounted());
    if (options_.only_recursion_is_called) return MakeWithCalls(root);
    // Two fifths of the steps, because with calls it may be smaller.
    budget_.Restrict(budget_.limits().max_steps / 5 * 2);
    absl::StatusOr<GrammarLanguage> language = MakeWithCalls(root);
    if (!budget_.is_exceeded()) return language;
    // With calls of what is repeated, and all lengths counted, most are small.
    RETURN_IF_ERROR(pool_.status());
    Forget();
    options_.calls_any_value = true;
    options_.calls_repeated_values = true;
    options_.max_unrolled_lengths = 0;
    budget_.Renew(steps_left);
    RETURN_IF_ERROR(FindCounted());
    std::erase_if(strings_, [&](const auto& entry) {
      return counted_.contains(entry.first);
    });
    return MakeWithCalls(root);
  }

 private:
  absl::Status ReadWhitespace() {
    if (!options_.whitespace) return absl::OkStatus();
    const absl::StatusOr<ByteAutomaton> automaton =
        CompileJsonWhitespace(*options_.whitespace);
    if (!automaton.ok()) return Annotate(automaton.status(), "whitespace");
    ASSIGN_OR_RETURN(whitespace_, RangesOf(*automaton));
    return absl::OkStatus();
  }

  // Forgets what depends on the values that are called.
  void Forget() {
    counted_.clear();
    limits_.clear();
    inhabited_.clear();
    nests_at_will_ = false;
    num_any_levels_ = 0;
    has_value_.clear();
    languages_.clear();
  }

  // REQUIRES: shapes and the strings with counters are found.
  absl::StatusOr<GrammarLanguage> MakeWithCalls(Formula root) {
    if (FindCalled(root)) {
      RETURN_IF_ERROR(FindInhabited());
    } else if (counted_.empty()) {
      return CompileUnrolled(root);
    }
    const absl::StatusOr<bool> has_value = HasValue({root, options_.max_depth});
    if (!has_value.ok()) return At(root, has_value.status());
    if (!*has_value) return NoValue(root);
    absl::StatusOr<PushdownAutomaton> automaton = MakeCalls(root);
    if (!automaton.ok()) return At(root, automaton.status());
    return *std::move(automaton);
  }

  // Returns the error that no text is in the language: because no value
  // satisfies the schema, or because of values that are not written.
  absl::Status NoValue(Formula root) {
    nests_at_will_ = true;
    inhabited_.clear();
    RETURN_IF_ERROR(FindInhabited());
    if (inhabited_.contains(root)) {
      return At(root, InvalidArgument("the values that satisfy it nest more "
                                      "than ",
                                      options_.max_depth,
                                      " levels beyond the first"));
    }
    // Values that are not written would be of these formulas.
    std::map<int, std::pair<Formula, absl::Status>> unwritten;  // by number
    for (const auto& [formula, node] : nodes_) {
      if (inhabited_.contains(formula)) continue;
      absl::Status why = WhyUnwritten(node.shape);
      if (!why.ok()) unwritten[node.number] = {formula, std::move(why)};
    }
    const std::set<Formula> written = inhabited_;
    std::set<Formula> all = written;
    for (const auto& [_, entry] : unwritten) {
      const auto& [formula, why] = entry;
      all.insert(formula);
      inhabited_ = written;
      inhabited_.insert(formula);
      RETURN_IF_ERROR(FindInhabited());
      if (inhabited_.contains(root)) return At(formula, why);
    }
    inhabited_ = std::move(all);
    RETURN_IF_ERROR(FindInhabited());
    if (unwritten.empty() || !inhabited_.contains(root)) {
      return Unsatisfied(root);
    }
    const auto& [formula, why] = unwritten.begin()->second;
    return At(formula, why);
  }

  // Names the first contradiction without which, and without those before it,
  // there might be values.
  absl::Status Unsatisfied(Formula root) {
    for (const JsonSchemaReader::Contradiction& c : reader_.contradictions()) {
      for (const auto& known : nodes_) {
        const Formula formula = known.first;
        pool_.ForEachPolarity(formula, [&](int32_t variable, bool is_positive) {
          if (is_positive && assertions_.Of(variable).index == c.value) {
            inhabited_.insert(formula);
          }
        });
      }
      RETURN_IF_ERROR(FindInhabited());
      if (inhabited_.contains(root)) {
        return InvalidArgument(
            "#: no JSON value satisfies the schema; for example, ", c.text);
      }
    }
    return InvalidArgument("#: no JSON value satisfies the schema");
  }

  // OK if every value of a shape without texts would be written.
  absl::Status WhyUnwritten(const JsonShape& shape) const {
    if (shape.object && shape.object->may_lack_keys) {
      return InvalidArgument(
          "minProperties needs more keys than an object is written with: those "
          "that the schema names, and at most 6 others, which begin "
          "differently");
    }
    const std::string* const name = assertions_.IncompleteIn(shape.string);
    if (name == nullptr) return absl::OkStatus();
    return InvalidArgument(*name,
                           " is enforced by a part of its strings, none "
                           "of which satisfies it");
  }

  absl::StatusOr<ByteAutomaton> CompileUnrolled(Formula root) {
    const absl::StatusOr<bool> has_value = HasValue({root, options_.max_depth});
    if (!has_value.ok()) return At(root, has_value.status());
    if (!*has_value) return NoValue(root);
    absl::StatusOr<ByteAutomaton> automaton =
        MakeAutomaton({root, options_.max_depth});
    if (!automaton.ok()) return At(root, automaton.status());
    return automaton;
  }

  // A formula, and its place in the graph of the formulas of values and of
  // values inside.
  struct Node {
    JsonShape shape;
    int number = 0;  // in the order of a depth-first search
    int lowest = 0;  // number that a cycle leads to
    int cycle = -1;  // formulas that lead to one another have one
    bool is_on_path = false;
    int num_uses = 0;                  // edges that lead to it
    std::set<Formula> ancestors = {};  // values that lead back to these
  };
  using Counts = PushdownAutomaton::Counts;
  // Strings with a counter.
  struct Counted {
    int number = 0;
    std::vector<JsonAssertions::BoundedStrings> parts;
  };
  // Values of a formula that nest so many levels more within its cycle.
  using Values = std::pair<Formula, int>;
  // The empty language is null.
  using Language = std::shared_ptr<const AutomatonRanges>;

  // The languages of any value, by the levels that they nest, made once for all
  // compilations, and the steps that each took after those of lower levels.
  struct AnyValues {
    std::vector<Language> languages = {};
    std::vector<int64_t> steps = {};
  };
  // Null if there are none.
  static const AnyValues* AnyValuesOf(const JsonSchemaOptions& options,
                                      const CompileLimits& limits) {
    static const JsonSchemaOptions kDefault;
    constexpr CompileLimits kEnough;
    if (options.whitespace || options.max_depth > kDefault.max_depth ||
        limits.max_states < kEnough.max_states ||
        limits.max_table_bytes < kEnough.max_table_bytes) {
      return nullptr;
    }
    if (options.has_spaces) {
      static const AnyValues* const with_spaces = MakeAnyValues(true);
      return with_spaces;
    }
    static const AnyValues* const without_spaces = MakeAnyValues(false);
    return without_spaces;
  }
  static const AnyValues* MakeAnyValues(bool has_spaces) {
    CompileBudget budget;
    const JsonSchemaOptions options = {.has_spaces = has_spaces};
    const auto document =
        JsonSchemaDocument::Make(json::value(true), options.draft, &budget);
    CHECK(document.ok()) << document.status();
    JsonSchemaCompiler compiler(document->get(), &budget, options);
    const absl::Status status = compiler.Explore(FormulaPool::kTrue, 0);
    CHECK(status.ok()) << status;
    auto* const values = new AnyValues;
    for (int level = 0; level <= options.max_depth; ++level) {
      const int64_t before = budget.steps_left();
      const Values any = {FormulaPool::kTrue, level};
      auto language = compiler.MakeLanguage(any);
      CHECK(language.ok()) << language.status();
      values->languages.push_back(*language);
      values->steps.push_back(before - budget.steps_left());
      compiler.languages_.emplace(any, *std::move(language));
    }
    return values;
  }
  // Returns the language of any value. Takes the steps of making it, so that
  // the outcome is the same if another compilation has made it already.
  absl::StatusOr<Language> AnyValue(const AnyValues& any, int level) {
    for (; num_any_levels_ <= level; ++num_any_levels_) {
      RETURN_IF_ERROR(budget_.Take(any.steps[num_any_levels_]));
    }
    return any.languages[level];
  }

  // Numbers the formulas that are called: without calls of them, no formula
  // leads to itself. Returns false if there are none but the one of any value.
  bool FindCalled(Formula root) {
    calls_.clear();
    std::set<Formula> called;
    bool has_repeated = false;
    for (const auto& [formula, node] : nodes_) {
      called.insert(node.ancestors.begin(), node.ancestors.end());
      const bool is_repeated = options_.calls_repeated_values &&
                               node.num_uses > 1 &&
                               (node.shape.array || node.shape.object);
      if (is_repeated) called.insert(formula);
      has_repeated |= is_repeated;
    }
    called.erase(root);
    calls_.emplace(root, 0);
    for (const Formula formula : called) {
      calls_.emplace(formula, static_cast<int>(calls_.size()));
    }
    num_digits_ = PushdownAutomaton::NumDigitsOf(std::ssize(calls_) +
                                                 std::ssize(counted_));
    // The value of {} alone is unrolled.
    const bool has_references =
        has_repeated || std::ranges::any_of(nodes_, [&](const auto& entry) {
          return std::ranges::any_of(entry.second.ancestors,
                                     [&](Formula formula) {
                                       return options_.calls_any_value ||
                                              formula != FormulaPool::kTrue;
                                     });
        });
    if (!has_references) calls_.clear();
    return has_references;
  }

  // Finds the formulas with values, of any nesting.
  absl::Status FindInhabited() {
    for (bool grows = true; grows;) {
      grows = false;
      for (const auto& [formula, node] : nodes_) {
        if (inhabited_.contains(formula)) continue;
        const absl::StatusOr<bool> has_value = IsInhabited(formula, node.shape);
        if (!has_value.ok()) return At(formula, has_value.status());
        if (!*has_value) continue;
        grows = true;
        inhabited_.insert(formula);
      }
    }
    return absl::OkStatus();
  }

  // As far as the formulas with values are known.
  absl::StatusOr<bool> IsInhabited(Formula formula, const JsonShape& shape) {
    ASSIGN_OR_RETURN(bool has_value, HasScalar(shape));
    for (const auto* machine : {&shape.array, &shape.object}) {
      if (has_value || !*machine) continue;
      ASSIGN_OR_RETURN(has_value, ReachesEnd(**machine, {formula, 0}));
    }
    return has_value;
  }

  // Finds the strings that have a counter.
  absl::Status FindCounted() {
    int64_t all_lengths = 0;
    for (const auto& [formula, node] : nodes_) {
      absl::Status status = AddCounted(
          node.shape.string, std::max(node.num_uses, 1), &all_lengths);
      if (node.shape.object) {
        for (const JsonMachine::State& state : node.shape.object->states) {
          for (const JsonMachine::Edge& edge : state.edges) {
            if (status.ok()) status = AddCounted(edge.keys, 1, &all_lengths);
          }
        }
      }
      if (!status.ok()) return At(formula, status);
    }
    if (all_lengths <= options_.max_unrolled_lengths) {
      counted_.clear();
      limits_.clear();
    }
    return absl::OkStatus();
  }

  // Adds the lengths to `*all_lengths`.
  absl::Status AddCounted(Formula formula, int num_uses, int64_t* all_lengths) {
    ASSIGN_OR_RETURN(const auto parts, assertions_.ByLength(formula));
    if (!parts) return absl::OkStatus();
    std::vector<Counts> limits = limits_;
    int64_t max_length = 0;
    for (const JsonAssertions::BoundedStrings& part : *parts) {
      const bool has_most = part.max_length != JsonAssertions::kNoMaxLength;
      const int64_t length = has_most ? part.max_length : part.min_length;
      if (length > 0) {
        if (length > PushdownAutomaton::kMaxCount) return absl::OkStatus();
        // Unrolled strings have a copy of the rest for each length.
        ASSIGN_OR_RETURN(const ByteAutomaton* const strings,
                         assertions_.Strings(part.strings));
        max_length =
            std::max(max_length,
                     std::min(length, kManyLengths) *
                         std::max(strings->num_states() / kStatesOfString, 1));
      }
      // It may be a greater one.
      if (part.min_length >= kMaxKeywordCount) return absl::OkStatus();
      if (part.min_length > 0) {
        ASSIGN_OR_RETURN(const bool is_countable, HasLeastCount(part));
        if (!is_countable) return absl::OkStatus();
      }
      const Counts counts = CountsOf(part);
      if (std::ranges::find(limits, counts) == limits.end()) {
        limits.push_back(counts);
      }
    }
    if (std::ssize(limits) > PushdownAutomaton::kMaxLimits) {
      return absl::OkStatus();
    }
    *all_lengths =
        std::min(*all_lengths + std::min(max_length, kManyLengths) * num_uses,
                 kManyLengths);
    limits_ = std::move(limits);
    const auto number = static_cast<int>(counted_.size());
    counted_.try_emplace(formula, Counted{number, *parts});
    return absl::OkStatus();
  }

  static Counts CountsOf(const JsonAssertions::BoundedStrings& part) {
    return {part.min_length, part.max_length};
  }

  // True if a counter may have the least length of these strings.
  absl::StatusOr<bool> HasLeastCount(
      const JsonAssertions::BoundedStrings& part) {
    ASSIGN_OR_RETURN(const ByteAutomaton* const strings,
                     assertions_.Strings(part.strings));
    const StringsWithLimit with_limit = {strings, /*limit=*/0};
    ASSIGN_OR_RETURN(
        const ByteAutomaton quoted,
        QuoteStringsWithLimits(std::span(&with_limit, 1), &budget_));
    ASSIGN_OR_RETURN(const Language language, RangesOf(quoted));
    ByteNfa nfa(&budget_);
    ASSIGN_OR_RETURN(const NfaState start, nfa.AddState());
    ASSIGN_OR_RETURN(const NfaState begin, nfa.AddState());
    ASSIGN_OR_RETURN(const NfaState end, nfa.AddState());
    RETURN_IF_ERROR(PushdownAutomaton::AddCall(0, 1, start, begin, &nfa));
    RETURN_IF_ERROR(AddAutomaton(*language, begin, end, &nfa));
    ASSIGN_OR_RETURN(const ByteAutomaton calls,
                     std::move(nfa).Build(start, end));
    const absl::Status status =
        PushdownAutomaton::Make(calls, 1, options_.max_calls, &budget_,
                                {CountsOf(part)})
            .status();
    if (absl::IsFailedPrecondition(status)) return false;
    RETURN_IF_ERROR(status);
    return true;
  }

  absl::StatusOr<PushdownAutomaton> MakeCalls(Formula root) {
    ByteNfa nfa(&budget_);
    ASSIGN_OR_RETURN(const NfaState start, nfa.AddState());
    ASSIGN_OR_RETURN(const NfaState end, nfa.AddState());
    // Adds a call, and returns where its texts begin.
    const auto add_call = [&](int64_t number) -> absl::StatusOr<NfaState> {
      ASSIGN_OR_RETURN(const NfaState begin, nfa.AddState());
      RETURN_IF_ERROR(
          PushdownAutomaton::AddCall(number, num_digits_, start, begin, &nfa));
      return begin;
    };
    if (!has_calls()) {
      ASSIGN_OR_RETURN(const NfaState begin, add_call(0));
      RETURN_IF_ERROR(AddShape({root, options_.max_depth}, begin, end, &nfa));
    }
    for (const auto& [formula, number] : calls_) {
      if (!inhabited_.contains(formula)) continue;
      ASSIGN_OR_RETURN(const NfaState begin, add_call(number));
      const absl::Status status = AddShape({formula, 0}, begin, end, &nfa);
      if (!status.ok()) return At(formula, status);
    }
    for (const auto& [formula, counted] : counted_) {
      if (counted.parts.empty()) continue;
      ASSIGN_OR_RETURN(const NfaState begin, add_call(CallOf(counted)));
      ASSIGN_OR_RETURN(const ByteAutomaton automaton, MakeCounted(counted));
      ASSIGN_OR_RETURN(const Language language, RangesOf(automaton));
      RETURN_IF_ERROR(AddAutomaton(*language, begin, end, &nfa));
    }
    ASSIGN_OR_RETURN(const ByteAutomaton calls,
                     std::move(nfa).Build(start, end));
    return PushdownAutomaton::Make(calls, num_digits_, options_.max_calls,
                                   &budget_, limits_);
  }

  // Returns the number of the call of strings with a counter.
  int64_t CallOf(const Counted& counted) const {
    return std::max<int64_t>(std::ssize(calls_), 1) + counted.number;
  }

  absl::StatusOr<ByteAutomaton> MakeCounted(const Counted& counted) {
    std::vector<StringsWithLimit> parts;
    for (const JsonAssertions::BoundedStrings& part : counted.parts) {
      ASSIGN_OR_RETURN(const ByteAutomaton* const strings,
                       assertions_.Strings(part.strings));
      parts.push_back({strings, std::ranges::find(limits_, CountsOf(part)) -
                                    limits_.begin()});
    }
    return QuoteStringsWithLimits(parts, &budget_);
  }

  // Adds where an error is, unless it says so.
  absl::Status At(Formula formula, const absl::Status& status) const {
    if (Message(status).starts_with("#")) return status;
    const std::vector<int32_t> variables = pool_.VariablesOf(formula);
    const std::string& pointer =
        variables.empty()
            ? document_.PointerOf(JsonSchemaDocument::kRoot)
            : document_.PointerOf(static_cast<JsonSchemaDocument::Id>(
                  assertions_.Of(variables.front()).index));
    return Annotate(status, pointer);
  }

  // Makes the shapes of a formula and of those of the values inside, and finds
  // cycles (Tarjan, Depth-first search and linear graph algorithms, SIAM
  // Journal on Computing 1(2), 1972).
  absl::Status Explore(Formula formula, int depth) {
    if (depth > kMaxNesting) {
      return At(formula, InvalidArgument("subschemas nest more than ",
                                         kMaxNesting, " deep"));
    }
    absl::StatusOr<JsonShape> shape = builder_.Build(formula);
    if (!shape.ok()) return At(formula, shape.status());
    Node& node = nodes_[formula];
    node.shape = *std::move(shape);
    node.number = node.lowest = num_nodes_++;
    node.is_on_path = true;
    open_.push_back(formula);
    for (const auto* machine : {&node.shape.array, &node.shape.object}) {
      if (!*machine) continue;
      for (const JsonMachine::State& state : (*machine)->states) {
        for (const JsonMachine::Edge& edge : state.edges) {
          RETURN_IF_ERROR(ExploreInner(edge.value, depth, &node));
        }
      }
    }
    node.is_on_path = false;
    if (node.lowest != node.number) return absl::OkStatus();
    while (true) {
      const Formula inner = open_.back();
      open_.pop_back();
      nodes_[inner].cycle = node.number;
      if (inner == formula) break;
    }
    return absl::OkStatus();
  }

  absl::Status ExploreInner(Formula inner, int depth, Node* node) {
    RETURN_IF_ERROR(budget_.Take(4));
    const auto found = nodes_.find(inner);
    if (found == nodes_.end()) {
      RETURN_IF_ERROR(Explore(inner, depth + 1));
      Node& added = nodes_[inner];
      ++added.num_uses;
      node->lowest = std::min(node->lowest, added.lowest);
      return absl::OkStatus();
    }
    ++found->second.num_uses;
    if (found->second.cycle >= 0) return absl::OkStatus();
    node->lowest = std::min(node->lowest, found->second.number);
    if (found->second.is_on_path) node->ancestors.insert(inner);
    return absl::OkStatus();
  }

  // Returns the values of a formula inside one of `outer`; unset if they nest
  // too deep.
  std::optional<Values> Inside(const Values& outer, Formula inner) {
    if (has_calls() || nests_at_will_) return Values(inner, 0);
    const Node& node = nodes_[outer.first];
    if (nodes_[inner].cycle != node.cycle) {
      return Values(inner, options_.max_depth);
    }
    if (!node.ancestors.contains(inner)) return Values(inner, outer.second);
    if (outer.second == 0) return std::nullopt;
    return Values(inner, outer.second - 1);
  }

  // True if values may be called, so that they nest as the calls do.
  bool has_calls() const { return !calls_.empty(); }

  absl::StatusOr<bool> HasScalar(const JsonShape& shape) {
    if (shape.has_null || shape.has_false || shape.has_true) return true;
    ASSIGN_OR_RETURN(const Language numbers, NumbersOf(shape.number));
    if (numbers != nullptr) return true;
    ASSIGN_OR_RETURN(const Language strings, StringsOf(shape.string));
    return strings != nullptr;
  }

  absl::StatusOr<bool> HasValue(const Values& values) {
    if (has_calls() || nests_at_will_) {
      return inhabited_.contains(values.first);
    }
    const auto known = has_value_.find(values);
    if (known != has_value_.end()) return known->second;
    const JsonShape& shape = nodes_[values.first].shape;
    ASSIGN_OR_RETURN(bool has_value, HasScalar(shape));
    for (const auto* machine : {&shape.array, &shape.object}) {
      if (has_value || !*machine) continue;
      ASSIGN_OR_RETURN(has_value, ReachesEnd(**machine, values));
    }
    has_value_.emplace(values, has_value);
    return has_value;
  }

  // True if some array or object of a machine exists.
  absl::StatusOr<bool> ReachesEnd(const JsonMachine& machine,
                                  const Values& values) {
    std::vector<int> queue = {0};
    std::vector<uint8_t> seen(machine.states.size(), 0);
    while (!queue.empty()) {
      const int number = queue.back();
      queue.pop_back();
      if (number < 0 || seen[number] != 0) continue;
      seen[number] = 1;
      const JsonMachine::State& state = machine.states[number];
      if (state.accepts) return true;
      queue.push_back(state.skip);
      for (const JsonMachine::Edge& edge : state.edges) {
        RETURN_IF_ERROR(budget_.Take(1));
        if (seen[edge.to] != 0) continue;
        const std::optional<Values> inner = Inside(values, edge.value);
        if (!inner) continue;
        const absl::StatusOr<bool> has_value = HasValue(*inner);
        if (!has_value.ok()) return At(inner->first, has_value.status());
        if (*has_value) queue.push_back(edge.to);
      }
    }
    return false;
  }

  // REQUIRES: there is a value.
  absl::StatusOr<ByteAutomaton> MakeAutomaton(const Values& values) {
    ByteNfa nfa(&budget_);
    ASSIGN_OR_RETURN(const NfaState start, nfa.AddState());
    ASSIGN_OR_RETURN(const NfaState end, nfa.AddState());
    RETURN_IF_ERROR(AddShape(values, start, end, &nfa));
    return std::move(nfa).Build(start, end);
  }

  absl::StatusOr<Language> LanguageOf(const Values& values) {
    if (values.first == FormulaPool::kTrue && !has_calls()) {
      const AnyValues* const any = AnyValuesOf(options_, budget_.limits());
      if (any != nullptr) return AnyValue(*any, values.second);
    }
    return MakeLanguage(values);
  }

  absl::StatusOr<Language> MakeLanguage(const Values& values) {
    const JsonShape& shape = nodes_[values.first].shape;
    const bool is_string = !shape.has_null && !shape.has_false &&
                           !shape.has_true && !shape.array && !shape.object &&
                           shape.number == FormulaPool::kFalse;
    if (is_string) return StringsOf(shape.string);
    ASSIGN_OR_RETURN(const ByteAutomaton automaton, MakeAutomaton(values));
    return RangesOf(automaton);
  }

  absl::StatusOr<Language> RangesOf(const ByteAutomaton& automaton) {
    return RangesOf(automaton, &budget_);
  }
  static absl::StatusOr<Language> RangesOf(const ByteAutomaton& automaton,
                                           CompileBudget* budget) {
    RETURN_IF_ERROR(budget->Take(256 * int64_t{automaton.num_states()}));
    return std::make_shared<const AutomatonRanges>(automaton);
  }
  static absl::StatusOr<Language> Quoted(const ByteAutomaton& strings,
                                         CompileBudget* budget) {
    ASSIGN_OR_RETURN(const ByteAutomaton quoted, QuoteStrings(strings, budget));
    return RangesOf(quoted, budget);
  }

  // Adds the texts of values. Those of a formula that has several uses are made
  // minimal before.
  absl::Status AddValues(const Values& values, NfaState from, NfaState to,
                         ByteNfa* nfa) {
    const auto call = calls_.find(values.first);
    if (call != calls_.end()) {
      return PushdownAutomaton::AddCall(call->second, num_digits_, from, to,
                                        nfa);
    }
    const Node& node = nodes_[values.first];
    if (node.num_uses < 2) return AddShape(values, from, to, nfa);
    auto known = languages_.find(values);
    if (known == languages_.end()) {
      ASSIGN_OR_RETURN(Language language, LanguageOf(values));
      known = languages_.emplace(values, std::move(language)).first;
    }
    return AddAutomaton(*known->second, from, to, nfa);
  }

  absl::Status AddShape(const Values& values, NfaState from, NfaState to,
                        ByteNfa* nfa) {
    const JsonShape& shape = nodes_[values.first].shape;
    if (shape.has_null) RETURN_IF_ERROR(AddText("null", from, to, nfa));
    if (shape.has_false) RETURN_IF_ERROR(AddText("false", from, to, nfa));
    if (shape.has_true) RETURN_IF_ERROR(AddText("true", from, to, nfa));
    ASSIGN_OR_RETURN(const Language numbers, NumbersOf(shape.number));
    if (numbers != nullptr) {
      RETURN_IF_ERROR(AddAutomaton(*numbers, from, to, nfa));
    }
    ASSIGN_OR_RETURN(const Language strings, StringsOf(shape.string));
    if (strings != nullptr) {
      RETURN_IF_ERROR(AddAutomaton(*strings, from, to, nfa));
    }
    if (shape.array) {
      RETURN_IF_ERROR(AddMachine(*shape.array, "[]", values, from, to, nfa));
    }
    if (shape.object) {
      RETURN_IF_ERROR(AddMachine(*shape.object, "{}", values, from, to, nfa));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Language> NumbersOf(Formula formula) {
    const auto known = numbers_.find(formula);
    if (known != numbers_.end()) return known->second;
    ASSIGN_OR_RETURN(const ByteAutomaton* const automaton,
                     assertions_.Numbers(formula));
    Language language;
    if (automaton != nullptr) {
      ASSIGN_OR_RETURN(language, RangesOf(*automaton));
    }
    return numbers_.emplace(formula, language).first->second;
  }

  // Returns strings in quotes, or a call of them.
  absl::StatusOr<Language> StringsOf(Formula formula) {
    const auto known = strings_.find(formula);
    if (known != strings_.end()) return known->second;
    const auto counted = counted_.find(formula);
    if (counted != counted_.end()) {
      ASSIGN_OR_RETURN(Language call, MakeCall(counted->second));
      return strings_.emplace(formula, std::move(call)).first->second;
    }
    ASSIGN_OR_RETURN(const ByteAutomaton* const automaton,
                     assertions_.Strings(formula));
    Language language;
    if (formula == FormulaPool::kTrue) {
      static const auto* const kShared = new SharedLanguage<Language>(
          [&](CompileBudget* budget) { return Quoted(*automaton, budget); });
      ASSIGN_OR_RETURN(const Language* const shared, kShared->Get(&budget_));
      language = *shared;
    } else if (automaton != nullptr) {
      ASSIGN_OR_RETURN(language, Quoted(*automaton, &budget_));
    }
    return strings_.emplace(formula, language).first->second;
  }

  absl::StatusOr<Language> MakeCall(const Counted& counted) {
    if (counted.parts.empty()) return Language();
    ByteNfa nfa(&budget_);
    ASSIGN_OR_RETURN(const NfaState start, nfa.AddState());
    ASSIGN_OR_RETURN(const NfaState end, nfa.AddState());
    RETURN_IF_ERROR(PushdownAutomaton::AddCall(CallOf(counted), num_digits_,
                                               start, end, &nfa));
    ASSIGN_OR_RETURN(const ByteAutomaton call,
                     std::move(nfa).Build(start, end));
    return RangesOf(call);
  }

  static absl::Status AddText(std::string_view text, NfaState from, NfaState to,
                              ByteNfa* nfa) {
    for (size_t i = 0; i < text.size(); ++i) {
      NfaState next = to;
      if (i + 1 < text.size()) {
        ASSIGN_OR_RETURN(next, nfa->AddState());
      }
      const auto byte = static_cast<uint8_t>(text[i]);
      RETURN_IF_ERROR(nfa->AddBytes(from, byte, byte, next));
      from = next;
    }
    return absl::OkStatus();
  }

  // Adds the white space of a pattern.
  absl::Status AddWhitespace(NfaState from, NfaState to, ByteNfa* nfa) {
    if (whitespace_ == nullptr) return nfa->AddEmpty(from, to);
    return AddAutomaton(*whitespace_, from, to, nfa);
  }

  // Adds a "," or ":", and the white space that may follow it.
  absl::Status AddSeparator(char separator, NfaState from, NfaState to,
                            ByteNfa* nfa) {
    const std::string_view text(&separator, 1);
    if (whitespace_ == nullptr) {
      RETURN_IF_ERROR(AddText(text, from, to, nfa));
      if (!options_.has_spaces) return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const NfaState space, nfa->AddState());
    RETURN_IF_ERROR(AddText(text, from, space, nfa));
    if (whitespace_ != nullptr) return AddWhitespace(space, to, nfa);
    return AddText(" ", space, to, nfa);
  }

  // The states of an automaton for a state of a machine.
  struct States {
    NfaState before;  // before an item or member
    NfaState after;   // after one
    NfaState done;    // after the last one, if this state accepts
  };

  // `brackets` are the first byte and the last one.
  absl::Status AddMachine(const JsonMachine& machine, std::string_view brackets,
                          const Values& values, NfaState start, NfaState end,
                          ByteNfa* nfa) {
    std::vector<States> states(machine.states.size());
    for (States& state : states) {
      for (NfaState* const one : {&state.before, &state.after, &state.done}) {
        ASSIGN_OR_RETURN(*one, nfa->AddState());
      }
    }
    ASSIGN_OR_RETURN(const NfaState open, nfa->AddState());
    ASSIGN_OR_RETURN(const NfaState first, nfa->AddState());
    RETURN_IF_ERROR(AddText(brackets.substr(0, 1), start, open, nfa));
    RETURN_IF_ERROR(AddWhitespace(open, first, nfa));
    RETURN_IF_ERROR(nfa->AddEmpty(first, states[0].before));
    RETURN_IF_ERROR(nfa->AddEmpty(first, states[0].done));
    for (size_t i = 0; i < states.size(); ++i) {
      const JsonMachine::State& state = machine.states[i];
      ASSIGN_OR_RETURN(const NfaState rest, nfa->AddState());
      RETURN_IF_ERROR(AddWhitespace(states[i].after, rest, nfa));
      RETURN_IF_ERROR(AddSeparator(',', rest, states[i].before, nfa));
      RETURN_IF_ERROR(nfa->AddEmpty(rest, states[i].done));
      if (state.accepts) {
        RETURN_IF_ERROR(AddText(brackets.substr(1), states[i].done, end, nfa));
      }
      if (state.skip >= 0) {
        const States& skip = states[state.skip];
        RETURN_IF_ERROR(nfa->AddEmpty(states[i].before, skip.before));
        RETURN_IF_ERROR(nfa->AddEmpty(states[i].done, skip.done));
      }
      for (const JsonMachine::Edge& edge : state.edges) {
        RETURN_IF_ERROR(AddEdge(edge, values, states[i].before,
                                states[edge.to].after, nfa));
      }
    }
    return absl::OkStatus();
  }

  absl::Status AddEdge(const JsonMachine::Edge& edge, const Values& outer,
                       NfaState from, NfaState to, ByteNfa* nfa) {
    const std::optional<Values> values = Inside(outer, edge.value);
    if (!values) return absl::OkStatus();
    const absl::StatusOr<bool> has_value = HasValue(*values);
    if (!has_value.ok()) return At(values->first, has_value.status());
    if (!*has_value) return absl::OkStatus();
    if (edge.key || edge.keys != FormulaPool::kFalse) {
      ASSIGN_OR_RETURN(const NfaState colon, nfa->AddState());
      ASSIGN_OR_RETURN(const NfaState begin, nfa->AddState());
      if (edge.key) {
        RETURN_IF_ERROR(AddText(QuoteString(assertions_.KeyOf(*edge.key)), from,
                                colon, nfa));
      } else {
        ASSIGN_OR_RETURN(const Language keys, StringsOf(edge.keys));
        RETURN_IF_ERROR(AddAutomaton(*keys, from, colon, nfa));
      }
      ASSIGN_OR_RETURN(const NfaState rest, nfa->AddState());
      RETURN_IF_ERROR(AddWhitespace(colon, rest, nfa));
      RETURN_IF_ERROR(AddSeparator(':', rest, begin, nfa));
      from = begin;
    }
    const absl::Status status = AddValues(*values, from, to, nfa);
    return status.ok() ? status : At(values->first, status);
  }

  JsonSchemaDocument& document_;
  CompileBudget& budget_;
  JsonSchemaOptions options_;
  Language whitespace_;  // null without a pattern
  JsonAssertions assertions_;
  const FormulaPool& pool_ = assertions_.pool();
  JsonSchemaBounds bounds_;
  JsonSchemaKeys keys_;
  JsonSchemaReader reader_;
  JsonShapeBuilder builder_;
  std::map<Formula, Node> nodes_;
  std::vector<Formula> open_;  // whose cycles are not known yet
  int num_nodes_ = 0;
  // Numbers of calls; empty: values are unrolled.
  std::map<Formula, int> calls_;
  int num_digits_ = 0;
  std::map<Formula, Counted> counted_;  // by the strings
  std::vector<Counts> limits_;          // counters' limits, each once
  std::set<Formula> inhabited_;  // if there are calls, or values nest at will
  bool nests_at_will_ = false;   // to explain that there is no text
  int num_any_levels_ = 0;       // that steps are taken for
  std::map<Values, bool> has_value_;
  std::map<Values, Language> languages_;
  std::map<Formula, Language> numbers_;
  std::map<Formula, Language> strings_;
};

}  // namespace

absl::StatusOr<ByteAutomaton> CompileJsonSchema(
    json::value schema, const JsonSchemaOptions& options,
    CompileBudget* budget) {
  if (options.disable_additional_properties) CloseObjects(&schema);
  ASSIGN_OR_RETURN(
      const std::unique_ptr<JsonSchemaDocument> document,
      JsonSchemaDocument::Make(std::move(schema), options.draft, budget));
  return JsonSchemaCompiler(document.get(), budget, options).Compile();
}

absl::StatusOr<ByteAutomaton> CompileJsonSchema(
    json::value schema, const JsonSchemaOptions& options,
    const CompileLimits& limits) {
  CompileBudget budget(limits);
  return CompileJsonSchema(std::move(schema), options, &budget);
}

namespace {

absl::StatusOr<json::value> ParseSchema(std::string_view schema) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (schema.starts_with(kByteOrderMark)) {
    schema.remove_prefix(kByteOrderMark.size());
  }
  return ParseJson(schema);
}

}  // namespace

absl::StatusOr<ByteAutomaton> CompileJsonSchema(
    std::string_view schema, const JsonSchemaOptions& options,
    const CompileLimits& limits) {
  ASSIGN_OR_RETURN(json::value value, ParseSchema(schema));
  return CompileJsonSchema(std::move(value), options, limits);
}

absl::StatusOr<GrammarLanguage> CompileJsonSchemaWithCalls(
    std::string_view schema, const JsonSchemaOptions& options,
    const CompileLimits& limits) {
  ASSIGN_OR_RETURN(json::value value, ParseSchema(schema));
  if (options.disable_additional_properties) CloseObjects(&value);
  CompileBudget budget(limits);
  ASSIGN_OR_RETURN(
      const std::unique_ptr<JsonSchemaDocument> document,
      JsonSchemaDocument::Make(std::move(value), options.draft, &budget));
  JsonSchemaOptions allowed = options;
  if (options.only_recursion_is_called) {
    allowed.max_unrolled_lengths = std::numeric_limits<int64_t>::max();
  }
  return JsonSchemaCompiler(document.get(), &budget, allowed,
                            options.max_unrolled_length,
                            options.max_unrolled_least)
      .CompileWithCalls();
}

}  // namespace espalier
