// The tokens of a mask that another one may follow, by a constraint.
#pragma once

#include <cstdint>
#include <vector>

#include "constrain/constraint.h"

namespace espalier::testing {

//   legal  the mask of the state with this room
inline std::vector<uint32_t> ContinuingMaskOf(const Constraint& constraint,
                                              std::vector<uint32_t> legal,
                                              int32_t state, int32_t room) {
  for (TokenId token = 0; token < static_cast<TokenId>(legal.size() * 32);
       ++token) {
    uint32_t& word = legal[token / 32];
    const uint32_t bit = uint32_t{1} << (token % 32);
    if ((word & bit) == 0) continue;
    if (constraint.ends(constraint.Advance(state, token), room - 1)) {
      word &= ~bit;
    }
  }
  return legal;
}

}  // namespace espalier::testing
