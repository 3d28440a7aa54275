// PushdownCosts: the fewest bytes, or tokens, from each state of a
// PushdownAutomaton to where a text of the state's automaton may end. A text
// may have only so many calls within one another as the stack has room for
// (levels), so the fewest depend on that.
//
// Tokens are those within one automaton: with tokens that span a call or a
// return fewer may do. From a state with n > 1 of them, a token or a call leads
// to one with fewer.
//
// Thread safety: a value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "constrain/compile_budget.h"
#include "constrain/token_suffixes.h"

namespace espalier {

class PushdownAutomaton;

struct PushdownCosts {
  static constexpr int32_t kNever = std::numeric_limits<int32_t>::max();

  // [num_levels][num_states]  The fewest, at least one, with room for as many
  // calls within one another as the level; kNever if there are none. The last
  // level is also that of more room.
  std::vector<std::vector<int32_t>> more;
  // False: the steps did not suffice, so some are more than the fewest.
  bool is_exact = true;

  int32_t More(int32_t state, int level) const {
    return more[std::min(level, static_cast<int>(more.size()) - 1)][state];
  }
  int64_t num_bytes() const {
    int64_t num_bytes = 0;
    for (const std::vector<int32_t>& level : more) {
      num_bytes += static_cast<int64_t>(level.size() * sizeof(int32_t));
    }
    return num_bytes;
  }
};

// The sum, kNever if one of them is or it is as large.
inline int32_t AddCosts(int32_t a, int32_t b) {
  return a < PushdownCosts::kNever - b ? a + b : PushdownCosts::kNever;
}

// Takes steps of `budget` for each level in proportion to the transitions and
// calls, and as many steps as its limit for the tokens. If these do not
// suffice, some numbers are more than the fewest (is_exact).
// Errors: kInvalidArgument if the budget is spent.
absl::StatusOr<PushdownCosts> CountPushdownCosts(
    const PushdownAutomaton& automaton, const TokenSuffixes& tokens,
    CompileBudget* budget);

}  // namespace espalier
