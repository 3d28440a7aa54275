#include "constrain/regex_language.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "constrain/automaton_algebra.h"
#include "constrain/boolean_formula.h"
#include "constrain/byte_nfa.h"
#include "constrain/code_point_set.h"
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
  // Repetitions that are calls, with the numbers of the automata.
  using Calls = std::map<const RegexNode*, int64_t>;

  RegexToNfa(ByteNfa* nfa, CompileBudget* budget)
      : nfa_(*nfa), budget_(*budget), sets_(budget) {}

  // Adds calls in place of these repetitions and what is behind each. They
  // outlive this.
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

  // Adds characters of a set, each of which adds to a count, and one of `end`,
  // which the count may be at most limit number `limit` before.
  absl::Status AddCounted(const CodePointSet& set, const CodePointSet& end,
                          int64_t limit, State from, State to) {
    constexpr uint8_t kByte = PushdownAutomaton::kCountByte;
    ASSIGN_OR_RETURN(const State loop, nfa_.AddState());
    RETURN_IF_ERROR(nfa_.AddEmpty(from, loop));
    ASSIGN_OR_RETURN(const State after, sets_.Add(set, loop, &nfa_));
    RETURN_IF_ERROR(nfa_.AddBytes(after, kByte, kByte, loop));
    ASSIGN_OR_RETURN(const State before, nfa_.AddState());
    RETURN_IF_ERROR(PushdownAutomaton::AddLimit(limit, loop, before, &nfa_));
    ASSIGN_OR_RETURN(const State last, sets_.Add(end, before, &nfa_));
    return nfa_.AddEmpty(last, to);
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
      if (repeat_ == nullptr && calls_ != nullptr && calls_->contains(&child)) {
        ASSIGN_OR_RETURN(from, AddCall(child, from));
        ++i;  // the call reads the character behind it
      } else {
        ASSIGN_OR_RETURN(from, Add(child, from));
      }
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
    if (calls_ != nullptr && calls_->contains(&node)) {
      return AddLoop(child, from);
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

  absl::StatusOr<State> AddCall(const RegexNode& node, State from) {
    for (int i = 0; i < node.min_count; ++i) {
      ASSIGN_OR_RETURN(from, Add(node.children.front(), from));
    }
    ASSIGN_OR_RETURN(const State to, nfa_.AddState());
    RETURN_IF_ERROR(PushdownAutomaton::AddCall(calls_->at(&node), num_digits_,
                                               from, to, &nfa_));
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

absl::StatusOr<ByteAutomaton> CompileTree(const RegexNode& tree,
                                          RegexMatching matching,
                                          CompileBudget* budget) {
  ByteNfa nfa(budget);
  ASSIGN_OR_RETURN(const State start, nfa.AddState());
  ASSIGN_OR_RETURN(const State end,
                   AddTree(tree, matching, start, &nfa, budget));
  return std::move(nfa).Build(start, end);
}

// Compiles a tree with calls of repetitions.
class RegexWithCalls {
 public:
  RegexWithCalls(const RegexNode* tree, int max_unrolled, CompileBudget* budget)
      : tree_(*tree), max_unrolled_(max_unrolled), budget_(*budget) {}

  // Finds the repetitions that are calls, and returns whether there are any.
  absl::StatusOr<bool> FindCalls() {
    std::vector<Repeat> repeats;
    std::vector<const RegexNode*> queue = {&tree_};
    for (size_t i = 0; i < queue.size(); ++i) {
      // The bytes of a call come before the text, so its start is not known.
      if (queue[i]->kind == RegexNode::Kind::kAtStart ||
          queue[i]->kind == RegexNode::Kind::kAtEnd) {
        return false;
      }
      const std::vector<RegexNode>& children = queue[i]->children;
      for (size_t j = 0; j < children.size(); ++j) {
        queue.push_back(&children[j]);
        const bool is_counted =
            queue[i]->kind == RegexNode::Kind::kSequence &&
            j + 1 < children.size() && IsLong(children[j]) &&
            IsEndOf(children[j].children.front().set, children[j + 1]);
        if (is_counted) repeats.push_back({&children[j], &children[j + 1].set});
      }
    }
    if (std::ssize(repeats) > PushdownAutomaton::kMaxLimits) return false;
    for (const Repeat& repeat : repeats) calls_.emplace(repeat.node, 0);
    for (const Repeat& repeat : repeats) {
      ASSIGN_OR_RETURN(const bool has_one, HasOneCount(*repeat.node));
      if (has_one) repeats_.push_back(repeat);
    }
    calls_.clear();
    for (const Repeat& repeat : repeats_) {
      calls_.emplace(repeat.node, 1 + std::ssize(calls_));
    }
    return !calls_.empty();
  }

  // REQUIRES: FindCalls() returned true.
  absl::StatusOr<PushdownAutomaton> Compile() {
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
      // The least number is unrolled.
      const PushdownAutomaton::Counts counts = {.most = node->max_count -
                                                        node->min_count};
      const auto limit = std::ranges::find(limits, counts) - limits.begin();
      if (limit == std::ssize(limits)) limits.push_back(counts);
      ASSIGN_OR_RETURN(const State first, add_call(calls_.at(node)));
      RETURN_IF_ERROR(adder.AddCounted(node->children.front().set, *end_set,
                                       limit, first, end));
    }
    ASSIGN_OR_RETURN(const ByteAutomaton calls,
                     std::move(nfa).Build(start, end));
    return PushdownAutomaton::Make(calls, num_digits,
                                   PushdownAutomaton::kMaxDepth, &budget_,
                                   std::move(limits));
  }

 private:
  // A repetition, and the characters behind it.
  struct Repeat {
    const RegexNode* node;
    const CodePointSet* end;
  };

  bool IsLong(const RegexNode& node) const {
    return node.kind == RegexNode::Kind::kRepeat &&
           node.max_count != RegexNode::kUnbounded &&
           node.max_count - node.min_count > max_unrolled_ &&
           node.children.front().kind == RegexNode::Kind::kSet;
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

// Removes anchors at the ends of a pattern that whole texts match, where they
// always hold.
void DropOuterAnchors(RegexNode* tree) {
  if (tree->kind != RegexNode::Kind::kSequence) return;
  std::vector<RegexNode>& children = tree->children;
  while (!children.empty() &&
         children.front().kind == RegexNode::Kind::kAtStart) {
    children.erase(children.begin());
  }
  while (!children.empty() && children.back().kind == RegexNode::Kind::kAtEnd) {
    children.pop_back();
  }
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
  ASSIGN_OR_RETURN(RegexNode tree, ParseRegex(pattern, &budget));
  DropOuterAnchors(&tree);
  RegexWithCalls with_calls(&tree, max_unrolled, &budget);
  ASSIGN_OR_RETURN(const bool has_calls, with_calls.FindCalls());
  if (has_calls) return with_calls.Compile();
  return CompileTree(tree, RegexMatching::kWhole, &budget);
}

absl::StatusOr<GrammarLanguage> CompileRegexLanguage(
    std::string_view pattern, const CompileLimits& limits) {
  constexpr int kFewUnrolled = 16;
  CompileBudget budget(limits);
  ASSIGN_OR_RETURN(RegexNode tree, ParseRegex(pattern, &budget));
  absl::StatusOr<ByteAutomaton> copied =
      CompileTree(tree, RegexMatching::kWhole, &budget);
  if (copied.ok() || !budget.is_exceeded()) return copied;
  budget.Renew(limits.max_steps);
  DropOuterAnchors(&tree);
  RegexWithCalls with_calls(&tree, kFewUnrolled, &budget);
  const absl::StatusOr<bool> has_calls = with_calls.FindCalls();
  if (!has_calls.ok() || !*has_calls) return copied;
  return with_calls.Compile();
}

}  // namespace espalier
