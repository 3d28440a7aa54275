// Token masks: the legal tokens of a state of a constraint, as a bit for each
// token of the vocabulary. Others say token bitmasks (XGrammar).
//
// Masks are for devices: searches on the host use lists
// (Constraint::LegalTokens), of which these are the bits.
#pragma once

#include <cstdint>
#include <vector>

#include "base/constraint_tables.h"
#include "base/host_device.h"

namespace espalier {

// Words of one mask: whole tiles of 1,024 tokens, as logits are read in
// (kernels/logits/cuda_row_logits.cuh). Bits beyond the vocabulary are 0.
inline constexpr int kMaskTileTokens = 1024;
ESPALIER_HOST_DEVICE inline int NumMaskWords(int vocab_size) {
  return (vocab_size + kMaskTileTokens - 1) / kMaskTileTokens *
         (kMaskTileTokens / 32);
}

// Returns bit `token % 32` of word `token / 32`.
ESPALIER_HOST_DEVICE inline bool IsInMask(const uint32_t* mask, int token) {
  return (mask[token / 32] >> (token % 32) & 1) != 0;
}

struct MaskedState {
  int32_t state = 0;
  int32_t room = 0;  // tokens
};

namespace reference {

// Returns the mask of a state, [NumMaskWords(vocab_size)]. A state after an end
// id, or without room, has none of the tokens.
std::vector<uint32_t> TokenMask(const ConstraintTables& tables,
                                const MaskedState& state);

}  // namespace reference
}  // namespace espalier
