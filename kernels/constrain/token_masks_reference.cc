#include "base/constraint_state.h"
#include "kernels/constrain/token_masks.h"

namespace espalier::reference {

std::vector<uint32_t> TokenMask(const ConstraintTables& tables,
                                const MaskedState& state) {
  std::vector<uint32_t> mask(NumMaskWords(tables.vocab_size));
  for (TokenId token = 0; token < tables.vocab_size; ++token) {
    if (IsLegalToken(tables, state.state, state.room, token)) {
      mask[token / 32] |= uint32_t{1} << (token % 32);
    }
  }
  return mask;
}

std::vector<uint32_t> TokenMask(const ConstraintTables& tables,
                                const PushdownPlace& place, int32_t room) {
  std::vector<uint32_t> mask(NumMaskWords(tables.vocab_size));
  for (TokenId token = 0; token < tables.vocab_size; ++token) {
    if (IsLegalToken(tables, place, room, token)) {
      mask[token / 32] |= uint32_t{1} << (token % 32);
    }
  }
  return mask;
}

}  // namespace espalier::reference
