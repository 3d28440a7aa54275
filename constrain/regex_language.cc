#include "constrain/regex_language.h"

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "constrain/byte_nfa.h"
#include "constrain/code_point_set.h"
#include "constrain/regex_parser.h"

namespace espalier {
namespace {

using State = ByteNfa::State;

constexpr char32_t kLastAscii = 0x7F;

// Adds syntax trees to an NFA. Each function adds paths from `from`, and
// returns the state that they lead to. No path leads back to `from`, so several
// trees may begin there.
class RegexToNfa {
 public:
  RegexToNfa(ByteNfa* nfa, CompileBudget* budget)
      : nfa_(*nfa), budget_(*budget) {}

  absl::StatusOr<State> Add(const RegexNode& node, State from) {
    switch (node.kind) {
      case RegexNode::Kind::kSet:
        return AddSet(node.set, from);
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
  absl::StatusOr<State> AddSet(const CodePointSet& set, State from) {
    if (set.empty() || set.ranges().back().last <= kLastAscii) {
      ASSIGN_OR_RETURN(const State to, nfa_.AddState());
      RETURN_IF_ERROR(set.AddTo(&nfa_, from, to));
      return to;
    }
    RETURN_IF_ERROR(
        budget_.Take(1 + static_cast<int64_t>(set.ranges().size())));
    const auto [entry, is_new] = utf8_of_sets_.try_emplace(set.ranges());
    Utf8& utf8 = entry->second;
    if (is_new) {
      ASSIGN_OR_RETURN(utf8, Utf8Of(set));
    }
    ASSIGN_OR_RETURN(const State to, nfa_.AddState());
    std::vector<State> states(utf8.num_states);
    for (int s = 0; s < utf8.num_states; ++s) {
      states[s] = s == ByteAutomaton::kStart ? from : to;
      if (s == ByteAutomaton::kStart || s == utf8.end) continue;
      ASSIGN_OR_RETURN(states[s], nfa_.AddState());
    }
    for (const Utf8::Edge& edge : utf8.edges) {
      RETURN_IF_ERROR(nfa_.AddBytes(states[edge.from], edge.first, edge.last,
                                    states[edge.to]));
    }
    return to;
  }

  // The minimal automaton of a set's code points in UTF-8, as edges. That of
  // \p{L} has a fraction of the edges that its ranges have.
  struct Utf8 {
    struct Edge {
      State from;
      uint8_t first;
      uint8_t last;
      State to;
    };
    int num_states = 0;
    State end = 0;  // the only accepting one; no edge leaves it
    std::vector<Edge> edges;
  };

  absl::StatusOr<Utf8> Utf8Of(const CodePointSet& set) {
    ByteNfa nfa(&budget_);
    ASSIGN_OR_RETURN(const State start, nfa.AddState());
    ASSIGN_OR_RETURN(const State end, nfa.AddState());
    RETURN_IF_ERROR(set.AddTo(&nfa, start, end));
    ASSIGN_OR_RETURN(const ByteAutomaton automaton,
                     std::move(nfa).Build(start, end));
    Utf8 utf8;
    utf8.num_states = automaton.num_states();
    for (State s = 0; s < utf8.num_states; ++s) {
      if (automaton.accepts(s)) utf8.end = s;
      bool is_adjacent = false;  // the last byte has an edge from `s`
      for (int byte = 0; byte < 256; ++byte) {
        const State to = automaton.Next(s, static_cast<uint8_t>(byte));
        const auto last = static_cast<uint8_t>(byte);
        if (is_adjacent && utf8.edges.back().to == to) {
          utf8.edges.back().last = last;
        } else if (to != ByteAutomaton::kNone) {
          utf8.edges.push_back({s, last, last, to});
        }
        is_adjacent = to != ByteAutomaton::kNone;
      }
    }
    return utf8;
  }

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
  // By the ranges of the set. Repetitions and equal classes share them.
  std::map<std::vector<CodePointSet::Range>, Utf8> utf8_of_sets_;
};

absl::StatusOr<ByteAutomaton> Compile(const RegexNode& tree,
                                      RegexMatching matching,
                                      CompileBudget* budget) {
  ByteNfa nfa(budget);
  RegexToNfa adder(&nfa, budget);
  ASSIGN_OR_RETURN(const State start, nfa.AddState());
  State state = start;
  const bool searches = matching == RegexMatching::kSearch;
  if (searches) {
    ASSIGN_OR_RETURN(state, adder.AddAnyText(state));
  }
  ASSIGN_OR_RETURN(state, adder.Add(tree, state));
  if (searches) {
    ASSIGN_OR_RETURN(state, adder.AddAnyText(state));
  }
  return std::move(nfa).Build(start, state);
}

}  // namespace

absl::StatusOr<ByteAutomaton> CompileRegex(std::string_view pattern,
                                           RegexMatching matching,
                                           const CompileLimits& limits) {
  CompileBudget budget(limits);
  ASSIGN_OR_RETURN(const RegexNode tree, ParseRegex(pattern, &budget));
  return Compile(tree, matching, &budget);
}

}  // namespace espalier
