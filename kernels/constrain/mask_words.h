// The words of a token mask: a bit for each token of the vocabulary.
#pragma once

#include <cstdint>

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

}  // namespace espalier
