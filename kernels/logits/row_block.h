// Row blocks: the vector arithmetic of selection and sampling, on a short run
// of scores that stays in the first-level cache while it is read two or three
// times. Both walk a row block by block (select_cpu.cc, processed_logits.h) and
// call these; what is sampling's alone is in weighted_block.h.
//
// A block is any number of whole chunks. Which instruction set runs is chosen
// once, at the first call, from what the processor offers; values may differ
// between instruction sets by float32 rounding (with and without fused
// multiply-add), never between calls, threads, alignments or neighbours.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>

namespace espalier {

// Scores of a chunk: as many as a mask has bits.
inline constexpr int kChunkSize = 64;

// All of these take
//   values  [size]  f32  any alignment
//   size    > 0, a multiple of kChunkSize

struct BlockMax {
  float max = 0;  // of the values; unspecified if there is a NaN
  // Whether any value may be NaN: surely true if one is, and sometimes when
  // sums overflow.
  bool maybe_nan = false;
};
BlockMax MaxOfBlock(const float* values, int size);

// The same, and the maxima of kBlockGroups disjoint parts of the block that
// cover it; which tokens form a part depends on the instruction set.
inline constexpr int kBlockGroups = 16;
BlockMax MaxOfBlock(const float* values, int size, float* group_max);

// The sum of exp(value - max), added up in a fixed order. exp(0) is exactly 1;
// terms are within 2 ulp of exp of the float32 difference down to exp(-17),
// and within 5 ulp below, where they are too small for it to show. Terms below
// exp(-87) count as exp(-87), which no sum that contains the maximum can feel.
// REQUIRES: no NaN, max finite and no value above it.
double SumOfExp(const float* values, int size, float max);

// The same, to the bit, and the sum of term * (value - max), in which no factor
// counts as less than -87.
struct ExpMoments {
  double sum = 0;
  double moment = 0;
};
ExpMoments MomentsOfExp(const float* values, int size, float max);

// Scores above a threshold, found a chunk at a time so that the caller can
// raise the threshold as it takes them.
struct ChunkMask {
  int begin = 0;      // of the chunk in the block; `size` if there is no more
  uint64_t mask = 0;  // bit i: values[begin + i] > threshold
};
// The first chunk from `begin` on (a multiple of kChunkSize) that has any.
ChunkMask FirstAbove(const float* values, int begin, int size, float threshold);

}  // namespace espalier
