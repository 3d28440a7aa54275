// Noise blocks: the vector arithmetic of Gumbel top-k (gumbel_topk.h). It finds
// the few tokens of a chunk whose noise may lift them above a threshold. The
// others need neither exact noise nor an exact value.
//
// Blocks are as in row_block.h. The random words are random.h's, to the bit.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "kernels/logits/row_block.h"
#include "kernels/sample/random.h"

namespace espalier {

// The quantity that is compared with a threshold: value + noise. A token has
// the value value_of_max + (score - max) / temperature, within rounding of its
// terms.
struct NoiseThreshold {
  float max = 0;          // finite; no score is above it
  float temperature = 1;  // > 0
  double value_of_max = 0;
  double threshold = 0;
};

// Writes the first of the two words of the noise of each token from `first` on
// (gumbel.h).
//   words  [size]  u32  out
// REQUIRES: `first` is even; `size` as for blocks.
void WriteNoiseWords(TokenId first, int size, const RandomKey& key,
                     uint32_t* words);

// Returns a mask. Bit i: score[i] may be above the threshold, with the noise of
// word[i]. No token above it is missed, and few below it are found.
//   scores  [kChunkSize]  f32  any alignment; no NaN
//   words   [kChunkSize]  u32
uint64_t MayExceed(const float* scores, const uint32_t* words,
                   const NoiseThreshold& threshold);

}  // namespace espalier
