#include "constrain/regex_language.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "base/status.h"
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
  RegexToNfa(ByteNfa* nfa, CompileBudget* budget)
      : nfa_(*nfa), budget_(*budget), sets_(budget) {}

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
    for (const RegexNode& child : node.children) {
      ASSIGN_OR_RETURN(from, Add(child, from));
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

}  // namespace

absl::StatusOr<ByteAutomaton> CompileRegex(std::string_view pattern,
                                           RegexMatching matching,
                                           CompileBudget* budget) {
  ASSIGN_OR_RETURN(const RegexNode tree, ParseRegex(pattern, budget));
  ByteNfa nfa(budget);
  ASSIGN_OR_RETURN(const State start, nfa.AddState());
  ASSIGN_OR_RETURN(const State end,
                   AddTree(tree, matching, start, &nfa, budget));
  return std::move(nfa).Build(start, end);
}

absl::StatusOr<ByteAutomaton> CompileRegex(std::string_view pattern,
                                           RegexMatching matching,
                                           const CompileLimits& limits) {
  CompileBudget budget(limits);
  return CompileRegex(pattern, matching, &budget);
}

}  // namespace espalier
