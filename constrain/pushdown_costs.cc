#include "constrain/pushdown_costs.h"

#include <utility>

#include "base/status.h"
#include "constrain/pushdown_automaton.h"
#include "constrain/tokens_to_end.h"

namespace espalier {

absl::StatusOr<PushdownCosts> CountPushdownCosts(
    const PushdownAutomaton& automaton, const TokenSuffixes& tokens,
    CompileBudget* budget) {
  const int64_t num_edges =
      int64_t{automaton.num_states()} * automaton.num_classes() +
      automaton.num_calls();
  int64_t max_steps = budget->limits().max_steps;
  PushdownCosts costs;
  // The fewest of an automaton from its start, where its count is 0.
  const auto fewest_of = [&](const PushdownAutomaton::Call& call) {
    return std::max(costs.more.back()[call.callee],
                    automaton.MoreBelowLeast(call.callee, 0));
  };
  const CountTokensWithCalls count = TokenCounter(automaton, tokens);
  std::vector<CountedEdge> calls;
  for (int level = 0; level <= automaton.max_depth(); ++level) {
    // A step is some nanoseconds; most edges are none.
    RETURN_IF_ERROR(budget->Take(num_edges / 4));
    std::vector<CountedEdge> edges;
    for (int32_t s = 0; s < automaton.num_states(); ++s) {
      for (const PushdownAutomaton::Call& call : automaton.CallsOf(s)) {
        const int32_t below = automaton.MoreBelowLeast(call.callee, 0);
        if (below == PushdownCosts::kNever) continue;
        if (automaton.ends(call.after)) {  // takes no place on the stack
          edges.push_back({s, below, call.callee});
        } else if (level > 0 && fewest_of(call) != PushdownCosts::kNever) {
          edges.push_back({s, fewest_of(call), call.after});
        }
      }
    }
    // With more room nothing changes.
    if (level > 0 && edges == calls) break;
    calls = std::move(edges);
    // The first levels are most of what texts use.
    max_steps /= 2;
    TokensToEnd counts = count(calls, max_steps);
    costs.more.push_back(std::move(counts.more));
    costs.is_exact &= counts.is_exact;
  }
  return costs;
}

}  // namespace espalier
