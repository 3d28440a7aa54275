// Token masks: the legal tokens of a state of a constraint, as a bit for each
// token of the vocabulary. Others say token bitmasks (XGrammar).
//
// Masks are for devices: searches on the host use lists
// (Constraint::LegalTokens), of which these are the bits.
#pragma once

#include <cstdint>
#include <vector>

#include "base/constraint_tables.h"
#include "base/pushdown_tables.h"
#include "kernels/constrain/mask_words.h"

namespace espalier {

struct MaskedState {
  int32_t state = 0;
  int32_t room = 0;  // tokens
};

namespace reference {

// Returns the mask of a state, [NumMaskWords(vocab_size)]. A state after an end
// id, or without room, has none of the tokens.
std::vector<uint32_t> TokenMask(const ConstraintTables& tables,
                                const MaskedState& state);
// As above, of a place with a stack.
std::vector<uint32_t> TokenMask(const ConstraintTables& tables,
                                const PushdownPlace& place, int32_t room);
// As TokenMask, of the legal tokens that another one may follow.
std::vector<uint32_t> ContinuingMask(const ConstraintTables& tables,
                                     const MaskedState& state);
std::vector<uint32_t> ContinuingMask(const ConstraintTables& tables,
                                     const PushdownPlace& place, int32_t room);

}  // namespace reference
}  // namespace espalier
