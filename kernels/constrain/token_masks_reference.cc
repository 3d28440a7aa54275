#include "base/constraint_state.h"
#include "kernels/constrain/token_masks.h"

namespace espalier::reference {
namespace {

// Returns the mask of the tokens for which `has` is true.
template <typename Has>
std::vector<uint32_t> MaskOf(int vocab_size, const Has& has) {
  std::vector<uint32_t> mask(NumMaskWords(vocab_size));
  for (TokenId token = 0; token < vocab_size; ++token) {
    if (has(token)) mask[token / 32] |= uint32_t{1} << (token % 32);
  }
  return mask;
}

}  // namespace

std::vector<uint32_t> TokenMask(const ConstraintTables& tables,
                                const MaskedState& state) {
  return MaskOf(tables.vocab_size, [&](TokenId token) {
    return IsLegalToken(tables, state.state, state.room, token);
  });
}

std::vector<uint32_t> TokenMask(const ConstraintTables& tables,
                                const PushdownPlace& place, int32_t room) {
  return MaskOf(tables.vocab_size, [&](TokenId token) {
    return IsLegalToken(tables, place, room, token);
  });
}

std::vector<uint32_t> ContinuingMask(const ConstraintTables& tables,
                                     const MaskedState& state) {
  return MaskOf(tables.vocab_size, [&](TokenId token) {
    return IsLegalToken(tables, state.state, state.room, token) &&
           !EndsAt(tables, AdvanceState(tables, state.state, token),
                   state.room - 1);
  });
}

std::vector<uint32_t> ContinuingMask(const ConstraintTables& tables,
                                     const PushdownPlace& place, int32_t room) {
  return MaskOf(tables.vocab_size, [&](TokenId token) {
    if (!IsLegalToken(tables, place, room, token)) return false;
    PushdownWalk walk =
        WalkFrom(tables, place.state, place.count, place.frames, place.height);
    return StateAfterToken(tables, place.state, room - 1, token, &walk) !=
           kNoConstraintState;
  });
}

}  // namespace espalier::reference
