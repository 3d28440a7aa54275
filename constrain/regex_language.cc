#include "constrain/regex_language.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "constrain/automaton_algebra.h"
#include "constrain/boolean_formula.h"
#include "constrain/byte_nfa.h"
#include "constrain/code_point_set.h"
#include "constrain/pushdown_arrays.h"
#include "constrain/pushdown_configurations.h"
#include "constrain/regex_parser.h"
#include "constrain/utf8_sets.h"

namespace espalier {
namespace {

using State = ByteNfa::State;

// Adds syntax trees to an NFA. Each function adds paths from `from`, and
// returns the state that they lead to. No path leads back to `from`, so several
// trees may begin there.
class RegexToNfa {
 public:
  // A repetition that is a call.
  struct Call {
    int64_t number = 0;  // automaton that is called
    // It reads what is behind the repetition, the next node of the sequence;
    // else what is before the last character.
    bool reads_end = false;
  };
  using Calls = std::map<const RegexNode*, Call>;

  RegexToNfa(ByteNfa* nfa, CompileBudget* budget)
      : nfa_(*nfa), budget_(*budget), sets_(budget) {}

  // Adds calls in place of these repetitions, which outlive this.
  void UseCalls(const Calls* calls, int num_digits) {
    calls_ = calls;
    num_digits_ = num_digits;
  }
  // Adds empty edges to `entry` where a text may begin with `repeat`. Its
  // `calls` are loops, so that there are more texts.
  void FindEntries(const Calls* calls, const RegexNode* repeat, State entry) {
    calls_ = calls;
    repeat_ = repeat;
    entry_ = entry;
  }

  absl::StatusOr<State> Add(const RegexNode& node, State from) {
    switch (node.kind) {
      case RegexNode::Kind::kSet:
        return sets_.Add(node.set, from, &nfa_);
      case RegexNode::Kind::kSequence:
        return AddSequence(node, from);
      case RegexNode::Kind::kChoice:
        return AddChoice(node, from);
      case RegexNode::Kind::kRepeat:
        return AddRepeat(node, from);
      case RegexNode::Kind::kAtStart:
        return AddCondition(NfaCondition::kAtStart, from);
      case RegexNode::Kind::kAtEnd:
        return AddCondition(NfaCondition::kAtEnd, from);
    }
    return Internal("unknown node of a regular expression");
  }

  // Adds characters of a set, each of which adds to a count that is at most
  // limit number `limit`, and one of `end`; if `end` is null, at least one
  // character.
  absl::Status AddCounted(const CodePointSet& set, const CodePointSet* end,
                          int64_t limit, State from, State to) {
    constexpr uint8_t kCount = PushdownAutomaton::kCountByte;
    constexpr uint8_t kNoByte = 0xF7;  // neither of texts nor of calls
    ASSIGN_OR_RETURN(const State loop, nfa_.AddState());
    const auto add_character = [&](State before) -> absl::Status {
      ASSIGN_OR_RETURN(const State after, sets_.Add(set, before, &nfa_));
      return nfa_.AddBytes(after, kCount, kCount, loop);
    };
    RETURN_IF_ERROR(add_character(loop));
    ASSIGN_OR_RETURN(const State before, nfa_.AddState());
    RETURN_IF_ERROR(PushdownAutomaton::AddLimit(limit, loop, before, &nfa_));
    if (end != nullptr) {
      RETURN_IF_ERROR(nfa_.AddEmpty(from, loop));
      ASSIGN_OR_RETURN(const State last, sets_.Add(*end, before, &nfa_));
      return nfa_.AddEmpty(last, to);
    }
    RETURN_IF_ERROR(add_character(from));
    RETURN_IF_ERROR(nfa_.AddEmpty(loop, to));
    return nfa_.AddBytes(before, kNoByte, kNoByte, to);
  }

  // Adds a loop over any text.
  absl::StatusOr<State> AddAnyText(State from) {
    return AddLoop({.kind = RegexNode::Kind::kSet, .set = CodePointSet::All()},
                   from);
  }

 private:
  absl::StatusOr<State> AddCondition(NfaCondition condition, State from) {
    ASSIGN_OR_RETURN(const State to, nfa_.AddState());
    RETURN_IF_ERROR(nfa_.AddEmpty(from, to, condition));
    return to;
  }

  absl::StatusOr<State> AddSequence(const RegexNode& node, State from) {
    for (size_t i = 0; i < node.children.size(); ++i) {
      const RegexNode& child = node.children[i];
      ASSIGN_OR_RETURN(from, Add(child, from));
      const Call* const call = CallOf(child);
      if (call != nullptr && call->reads_end) ++i;
    }
    return from;
  }

  absl::StatusOr<State> AddChoice(const RegexNode& node, State from) {
    ASSIGN_OR_RETURN(const State to, nfa_.AddState());
    for (const RegexNode& child : node.children) {
      ASSIGN_OR_RETURN(const State end, Add(child, from));
      RETURN_IF_ERROR(nfa_.AddEmpty(end, to));
    }
    return to;
  }

  absl::StatusOr<State> AddRepeat(const RegexNode& node, State from) {
    const RegexNode& child = node.children.front();
    if (&node == repeat_) RETURN_IF_ERROR(nfa_.AddEmpty(from, entry_));
    if (repeat_ != nullptr && calls_->contains(&node)) {
      return AddLoop(child, from);
    }
    if (const Call* const call = CallOf(node)) {
      return AddCall(node, *call, from);
    }
    // An empty child adds no state, so repetitions are counted themselves.
    for (int i = 0; i < node.min_count; ++i) {
      RETURN_IF_ERROR(budget_.Take(1));
      ASSIGN_OR_RETURN(from, Add(child, from));
    }
    if (node.max_count == RegexNode::kUnbounded) return AddLoop(child, from);
    ASSIGN_OR_RETURN(const State to, nfa_.AddState());
    RETURN_IF_ERROR(nfa_.AddEmpty(from, to));
    for (int i = node.min_count; i < node.max_count; ++i) {
      RETURN_IF_ERROR(budget_.Take(1));
      ASSIGN_OR_RETURN(from, Add(child, from));
      RETURN_IF_ERROR(nfa_.AddEmpty(from, to));
    }
    return to;
  }

  // Returns the call in place of a node, if there is one.
  const Call* CallOf(const RegexNode& node) const {
    if (repeat_ != nullptr || calls_ == nullptr) return nullptr;
    const auto found = calls_->find(&node);
    return found != calls_->end() ? &found->second : nullptr;
  }

  // The least number is unrolled.
  absl::StatusOr<State> AddCall(const RegexNode& node, const Call& call,
                                State from) {
    const RegexNode& child = node.children.front();
    for (int i = 0; i < node.min_count; ++i) {
      ASSIGN_OR_RETURN(from, Add(child, from));
    }
    ASSIGN_OR_RETURN(const State to, nfa_.AddState());
    if (call.reads_end) {
      RETURN_IF_ERROR(PushdownAutomaton::AddCall(call.number, num_digits_, from,
                                                 to, &nfa_));
      return to;
    }
    // After the last character there is no count, so that what may follow does
    // not depend on it.
    ASSIGN_OR_RETURN(const State before, nfa_.AddState());
    RETURN_IF_ERROR(nfa_.AddEmpty(from, before));
    RETURN_IF_ERROR(PushdownAutomaton::AddCall(call.number, num_digits_, from,
                                               before, &nfa_));
    ASSIGN_OR_RETURN(const State last, Add(child, before));
    RETURN_IF_ERROR(nfa_.AddEmpty(from, to));
    RETURN_IF_ERROR(nfa_.AddEmpty(last, to));
    return to;
  }

  absl::StatusOr<State> AddLoop(const RegexNode& child, State from) {
    ASSIGN_OR_RETURN(const State loop, nfa_.AddState());
    RETURN_IF_ERROR(nfa_.AddEmpty(from, loop));
    ASSIGN_OR_RETURN(const State end, Add(child, loop));
    RETURN_IF_ERROR(nfa_.AddEmpty(end, loop));
    ASSIGN_OR_RETURN(const State to, nfa_.AddState());
    RETURN_IF_ERROR(nfa_.AddEmpty(loop, to));
    return to;
  }

  ByteNfa& nfa_;
  CompileBudget& budget_;
  Utf8Sets sets_;
  const Calls* calls_ = nullptr;
  int num_digits_ = 0;
  const RegexNode* repeat_ = nullptr;
  State entry_ = 0;  // where repeat_ begins
};

// Adds `tree` to an NFA. Returns the state that its texts lead to.
absl::StatusOr<State> AddTree(const RegexNode& tree, RegexMatching matching,
                              State state, ByteNfa* nfa,
                              CompileBudget* budget) {
  RegexToNfa adder(nfa, budget);
  const bool searches = matching == RegexMatching::kSearch;
  if (searches) {
    ASSIGN_OR_RETURN(state, adder.AddAnyText(state));
  }
  ASSIGN_OR_RETURN(state, adder.Add(tree, state));
  if (!searches) return state;
  return adder.AddAnyText(state);
}

// About as many states as the UTF-8 of a set takes.
int64_t SizeOf(const CodePointSet& set) {
  constexpr int64_t kBeyondAscii = 8;
  const bool is_ascii = set.empty() || set.ranges().back().last < 0x80;
  return std::ssize(set.ranges()) + (is_ascii ? 0 : kBeyondAscii);
}

// The times that a repetition's child is copied.
int64_t NumCopies(const RegexNode& repeat) {
  return std::max(repeat.max_count, repeat.min_count + 1);
}

// Sizes of trees are counted up to this: its product with any number of copies
// does not overflow.
constexpr int64_t kMostCounted = int64_t{1} << 30;

// The repetition that a tree's size is most due to.
struct LargestRepeat {
  int64_t size = 0;  // states of a tree, about
  const RegexNode* node = nullptr;
};

LargestRepeat FindLargestRepeat(const RegexNode& tree) {
  if (tree.kind == RegexNode::Kind::kSet) return {SizeOf(tree.set)};
  LargestRepeat largest;
  int64_t size = 1;
  for (const RegexNode& child : tree.children) {
    const LargestRepeat of_child = FindLargestRepeat(child);
    size = std::min(kMostCounted, size + of_child.size);
    if (of_child.size > largest.size) largest = of_child;
  }
  if (tree.kind == RegexNode::Kind::kRepeat) {
    size = std::min(kMostCounted, size * NumCopies(tree));
    const bool is_larger =
        largest.node == nullptr || NumCopies(tree) >= NumCopies(*largest.node);
    if (tree.at >= 0 && is_larger) largest.node = &tree;
  }
  largest.size = size;
  return largest;
}

// Adds the repetition to an error about limits.
absl::Status NameLargest(const absl::Status& error, const RegexNode& tree) {
  const RegexNode* const node = FindLargestRepeat(tree).node;
  if (node == nullptr) return error;
  const std::string most = node->max_count == node->min_count ? ""
                           : node->max_count == RegexNode::kUnbounded
                               ? ","
                               : Concat(",", node->max_count);
  return InvalidArgument(Message(error), "; its largest repetition is {",
                         node->min_count, most, "} at byte ", node->at);
}

absl::StatusOr<ByteAutomaton> CompileTree(const RegexNode& tree,
                                          RegexMatching matching,
                                          CompileBudget* budget) {
  const auto compile = [&]() -> absl::StatusOr<ByteAutomaton> {
    ByteNfa nfa(budget);
    ASSIGN_OR_RETURN(const State start, nfa.AddState());
    ASSIGN_OR_RETURN(const State end,
                     AddTree(tree, matching, start, &nfa, budget));
    return std::move(nfa).Build(start, end);
  };
  absl::StatusOr<ByteAutomaton> automaton = compile();
  if (automaton.ok() || !budget->is_exceeded()) return automaton;
  return NameLargest(automaton.status(), tree);
}

// Compiles a tree with calls of repetitions.
class RegexWithCalls {
 public:
  // Changes `tree` to an equal one.
  RegexWithCalls(RegexNode* tree, int max_unrolled, CompileBudget* budget)
      : tree_(*tree), max_unrolled_(max_unrolled), budget_(*budget) {
    DropOuterAnchors(tree);
    SplitEnds(tree);
  }

  // Finds the repetitions that are calls, and returns whether there are any.
  absl::StatusOr<bool> FindCalls() {
    std::vector<Repeat> repeats;
    std::vector<const RegexNode*> queue = {&tree_};
    const auto add = [&](const RegexNode& node, const RegexNode* next) {
      if (!IsLong(node)) return;
      const bool reads_end =
          next != nullptr && IsEndOf(node.children.front().set, *next);
      repeats.push_back({&node, reads_end ? &next->set : nullptr});
    };
    add(tree_, nullptr);
    for (size_t i = 0; i < queue.size(); ++i) {
      // The bytes of a call come before the text, so its start is not known.
      if (queue[i]->kind == RegexNode::Kind::kAtStart ||
          queue[i]->kind == RegexNode::Kind::kAtEnd) {
        return false;
      }
      const std::vector<RegexNode>& children = queue[i]->children;
      const bool is_sequence = queue[i]->kind == RegexNode::Kind::kSequence;
      for (size_t j = 0; j < children.size(); ++j) {
        queue.push_back(&children[j]);
        const bool has_next = is_sequence && j + 1 < children.size();
        add(children[j], has_next ? &children[j + 1] : nullptr);
      }
    }
    if (std::ssize(repeats) > PushdownAutomaton::kMaxLimits) return false;
    for (const Repeat& repeat : repeats) {
      calls_.emplace(repeat.node, RegexToNfa::Call{});
    }
    for (const Repeat& repeat : repeats) {
      ASSIGN_OR_RETURN(const bool has_one, HasOneCount(*repeat.node));
      if (has_one) repeats_.push_back(repeat);
    }
    calls_.clear();
    for (const Repeat& repeat : repeats_) {
      calls_.emplace(repeat.node,
                     RegexToNfa::Call{1 + std::ssize(calls_),
                                      /*reads_end=*/repeat.end != nullptr});
    }
    return !calls_.empty();
  }

  // Returns nullopt if a text might have too many ways to be read.
  // REQUIRES: FindCalls() returned true.
  absl::StatusOr<std::optional<PushdownAutomaton>> Compile() {
    const int num_digits =
        PushdownAutomaton::NumDigitsOf(std::ssize(calls_) + 1);
    ByteNfa nfa(&budget_);
    RegexToNfa adder(&nfa, &budget_);
    adder.UseCalls(&calls_, num_digits);
    ASSIGN_OR_RETURN(const State start, nfa.AddState());
    ASSIGN_OR_RETURN(const State end, nfa.AddState());
    const auto add_call = [&](int64_t number) -> absl::StatusOr<State> {
      ASSIGN_OR_RETURN(const State begin, nfa.AddState());
      RETURN_IF_ERROR(
          PushdownAutomaton::AddCall(number, num_digits, start, begin, &nfa));
      return begin;
    };
    ASSIGN_OR_RETURN(const State begin, add_call(0));
    ASSIGN_OR_RETURN(const State after, adder.Add(tree_, begin));
    RETURN_IF_ERROR(nfa.AddEmpty(after, end));
    std::vector<PushdownAutomaton::Counts> limits;
    for (const auto& [node, end_set] : repeats_) {
      // The least number is unrolled, and so is the last one without an end.
      const PushdownAutomaton::Counts counts = {
          .most =
              node->max_count - node->min_count - (end_set == nullptr ? 1 : 0)};
      const auto limit = std::ranges::find(limits, counts) - limits.begin();
      if (limit == std::ssize(limits)) limits.push_back(counts);
      ASSIGN_OR_RETURN(const State first, add_call(calls_.at(node).number));
      RETURN_IF_ERROR(adder.AddCounted(node->children.front().set, end_set,
                                       limit, first, end));
    }
    ASSIGN_OR_RETURN(const ByteAutomaton calls,
                     std::move(nfa).Build(start, end));
    ASSIGN_OR_RETURN(
        PushdownAutomaton automaton,
        PushdownAutomaton::Make(calls, num_digits, PushdownAutomaton::kMaxDepth,
                                &budget_, std::move(limits)));
    if (!HasFewWays(automaton)) return std::nullopt;
    return automaton;
  }

 private:
  // A repetition, and the characters behind it if they tell its end.
  struct Repeat {
    const RegexNode* node;
    const CodePointSet* end;
  };

  // Removes anchors at the ends of a pattern that whole texts match, where they
  // always hold.
  static void DropOuterAnchors(RegexNode* tree) {
    if (tree->kind != RegexNode::Kind::kSequence) return;
    std::vector<RegexNode>& children = tree->children;
    while (!children.empty() &&
           children.front().kind == RegexNode::Kind::kAtStart) {
      children.erase(children.begin());
    }
    while (!children.empty() &&
           children.back().kind == RegexNode::Kind::kAtEnd) {
      children.pop_back();
    }
  }

  // Makes   a{0,99};+   the sequence   a{0,99};;*   whose next node tells where
  // the repetition ends.
  void SplitEnds(RegexNode* node) const {
    std::vector<RegexNode> children;
    for (RegexNode& child : node->children) {
      SplitEnds(&child);
      const bool is_split =
          node->kind == RegexNode::Kind::kSequence && !children.empty() &&
          IsLong(children.back()) && child.kind == RegexNode::Kind::kRepeat &&
          child.min_count > 0 &&
          child.children.front().kind == RegexNode::Kind::kSet;
      if (is_split) {
        children.push_back(child.children.front());
        --child.min_count;
        if (child.max_count != RegexNode::kUnbounded) --child.max_count;
      }
      children.push_back(std::move(child));
    }
    node->children = std::move(children);
  }

  // A way to read a text is in a state and a call. Calls are not within one
  // another, and each is at one count. The ways are at ends of characters, or
  // all of them within one.
  bool HasFewWays(const PushdownAutomaton& automaton) const {
    const bool has_one = std::ranges::all_of(
        repeats_, [](const Repeat& repeat) { return repeat.end != nullptr; });
    if (has_one) return true;
    int64_t num_boundaries = 0;
    for (int32_t s = 0; s < automaton.num_states(); ++s) {
      bool is_boundary = automaton.ends(s);
      for (int byte = 0; byte < 256; ++byte) {
        const bool is_inside = byte >= 0x80 && byte < 0xC0;
        is_boundary |= !is_inside &&
                       automaton.NextByClass(
                           s, automaton.ClassOf(static_cast<uint8_t>(byte))) !=
                           PushdownAutomaton::kNone;
      }
      num_boundaries += is_boundary ? 1 : 0;
    }
    return num_boundaries * std::ssize(calls_) <=
           PushdownConfigurations::kMaxWays;
  }

  bool IsLong(const RegexNode& node) const {
    return node.kind == RegexNode::Kind::kRepeat &&
           node.max_count != RegexNode::kUnbounded &&
           node.max_count - node.min_count > max_unrolled_ &&
           node.children.front().kind == RegexNode::Kind::kSet &&
           !node.children.front().set.empty();
  }

  // True if a byte tells the end of a repetition: it is ASCII, and another.
  static bool IsEndOf(const CodePointSet& set, const RegexNode& node) {
    if (node.kind != RegexNode::Kind::kSet || node.set.empty()) return false;
    if (node.set.ranges().back().last >= 0x80) return false;
    return std::ranges::none_of(node.set.ranges(), [&](const auto& a) {
      return std::ranges::any_of(set.ranges(), [&](const auto& b) {
        return a.first <= b.last && b.first <= a.last;
      });
    });
  }

  // True if no text that leads to the repetition does so, too, with some of its
  // characters behind it.
  absl::StatusOr<bool> HasOneCount(const RegexNode& repeat) {
    ByteNfa nfa(&budget_);
    ASSIGN_OR_RETURN(const State start, nfa.AddState());
    ASSIGN_OR_RETURN(const State entry, nfa.AddState());
    RegexToNfa adder(&nfa, &budget_);
    adder.FindEntries(&calls_, &repeat, entry);
    RETURN_IF_ERROR(adder.Add(tree_, start).status());
    const absl::StatusOr<ByteAutomaton> before =
        std::move(nfa).Build(start, entry);
    if (budget_.is_exceeded()) return before.status();
    if (!before.ok()) return false;  // no text leads there
    RETURN_IF_ERROR(budget_.Take(256 * int64_t{before->num_states()}));
    ByteNfa more(&budget_);
    RegexToNfa adder_of_more(&more, &budget_);
    ASSIGN_OR_RETURN(const State first, more.AddState());
    ASSIGN_OR_RETURN(const State between, more.AddState());
    RETURN_IF_ERROR(
        AddAutomaton(AutomatonRanges(*before), first, between, &more));
    const RegexNode some = {.kind = RegexNode::Kind::kRepeat,
                            .children = repeat.children,
                            .min_count = 1};
    ASSIGN_OR_RETURN(const State last, adder_of_more.Add(some, between));
    ASSIGN_OR_RETURN(const ByteAutomaton behind,
                     std::move(more).Build(first, last));
    const ByteAutomaton* const language = &behind;
    ASSIGN_OR_RETURN(
        const std::optional<ByteAutomaton> both,
        CombineAutomata(
            *before, std::span(&language, 1),
            [](std::span<const Truth> truths) { return truths[0]; }, &budget_));
    return !both.has_value();
  }

  const RegexNode& tree_;
  const int max_unrolled_;
  CompileBudget& budget_;
  std::vector<Repeat> repeats_;
  RegexToNfa::Calls calls_;  // numbers of repeats_
};

// Characters of repetitions that a counter would save, as many times as they
// are copied; those of a large class count more.
int64_t NumUnrolled(const RegexNode& tree) {
  constexpr int64_t kSizeOfAny = 14;
  if (tree.kind == RegexNode::Kind::kSet) return 0;
  int64_t count = 0;
  for (const RegexNode& child : tree.children) {
    count = std::min(kMostCounted, count + NumUnrolled(child));
  }
  if (tree.kind != RegexNode::Kind::kRepeat) return count;
  const RegexNode& child = tree.children.front();
  if (child.kind == RegexNode::Kind::kSet &&
      tree.max_count != RegexNode::kUnbounded) {
    const int64_t size = SizeOf(child.set);
    if (size == 0) return 0;
    return int64_t{tree.max_count - tree.min_count} *
           std::max<int64_t>(1, size / kSizeOfAny);
  }
  return std::min(kMostCounted, count * NumCopies(tree));
}

// Returns nullopt if no repetition can be counted.
absl::StatusOr<std::optional<PushdownAutomaton>> CompileCounted(
    RegexNode tree, int max_unrolled, CompileBudget* budget) {
  RegexWithCalls with_calls(&tree, max_unrolled, budget);
  ASSIGN_OR_RETURN(const bool has_calls, with_calls.FindCalls());
  if (!has_calls) return std::nullopt;
  return with_calls.Compile();
}

}  // namespace

absl::StatusOr<ByteAutomaton> CompileRegex(std::string_view pattern,
                                           RegexMatching matching,
                                           CompileBudget* budget) {
  ASSIGN_OR_RETURN(const RegexNode tree, ParseRegex(pattern, budget));
  return CompileTree(tree, matching, budget);
}

absl::StatusOr<ByteAutomaton> CompileRegex(std::string_view pattern,
                                           RegexMatching matching,
                                           const CompileLimits& limits) {
  CompileBudget budget(limits);
  return CompileRegex(pattern, matching, &budget);
}

absl::StatusOr<GrammarLanguage> CompileRegexWithCalls(
    std::string_view pattern, int max_unrolled, const CompileLimits& limits) {
  CompileBudget budget(limits);
  ASSIGN_OR_RETURN(const RegexNode tree, ParseRegex(pattern, &budget));
  ASSIGN_OR_RETURN(std::optional<PushdownAutomaton> counted,
                   CompileCounted(tree, max_unrolled, &budget));
  if (counted.has_value()) return *std::move(counted);
  return CompileTree(tree, RegexMatching::kWhole, &budget);
}

absl::StatusOr<GrammarLanguage> CompileRegexLanguage(
    std::string_view pattern, const CompileLimits& limits) {
  constexpr int kFewUnrolled = 16;
  constexpr int64_t kFewCopies = 1024;
  CompileBudget budget(limits);
  ASSIGN_OR_RETURN(const RegexNode tree, ParseRegex(pattern, &budget));
  if (NumUnrolled(tree) > kFewCopies) {
    CompileBudget few = budget;
    few.Restrict(limits.max_steps / 8);
    absl::StatusOr<std::optional<PushdownAutomaton>> counted =
        CompileCounted(tree, kFewUnrolled, &few);
    if (!counted.ok() && !few.is_exceeded()) return counted.status();
    if (counted.ok() && counted->has_value() &&
        PushdownArrays::Make(**counted, (*counted)->bytes()) != nullptr) {
      return **std::move(counted);
    }
  }
  absl::StatusOr<ByteAutomaton> copied =
      CompileTree(tree, RegexMatching::kWhole, &budget);
  if (copied.ok() || !budget.is_exceeded()) return copied;
  budget.Renew(limits.max_steps);
  absl::StatusOr<std::optional<PushdownAutomaton>> counted =
      CompileCounted(tree, kFewUnrolled, &budget);
  if (!counted.ok() || !counted->has_value()) return copied.status();
  return **std::move(counted);
}

}  // namespace espalier
