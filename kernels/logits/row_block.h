// Row blocks: the vector arithmetic of selection and sampling, on a short run
// of scores that stays in the first-level cache while it is read two or three
// times. Both walk a row block by block (select_cpu.cc, processed_logits.h) and
// call these; functions for sampling alone are in weighted_block.h.
//
// A block is any number of whole chunks. The first call selects the instruction
// set from the processor's features. Values may differ between instruction sets
// by float32 rounding (with and without fused multiply-add), never between
// calls, threads, alignments or neighbours.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>

namespace espalier {

// Scores of a chunk: as many as a mask has bits.
inline constexpr int kChunkSize = 64;

// All functions take
//   values  [size]  f32  any alignment
//   size    > 0, a multiple of kChunkSize

struct BlockMax {
  float max = 0;  // unspecified if a value is NaN
  // True if any value is NaN. Sometimes true without one, when sums overflow.
  bool maybe_nan = false;
};
BlockMax MaxOfBlock(const float* values, int size);

// Also writes the maxima of kBlockGroups disjoint parts that cover the block.
// The tokens of a part depend on the instruction set.
inline constexpr int kBlockGroups = 16;
BlockMax MaxOfBlock(const float* values, int size, float* group_max);

// Returns the sum of exp(value - max), added in a fixed order. exp(0) is
// exactly 1. Terms are within 2 ulp of exp of the float32 difference down to
// exp(-17), and within 5 ulp below, where they are too small to matter. Terms
// below exp(-87) count as exp(-87), which cannot change a sum that contains the
// maximum.
// REQUIRES: no NaN, max finite and no value above it.
double SumOfExp(const float* values, int size, float max);

// SumOfExp, the same bits, and the sum of term * (value - max), in which no
// factor counts as less than -87.
struct ExpMoments {
  double sum = 0;
  double moment = 0;
};
ExpMoments MomentsOfExp(const float* values, int size, float max);

// Scores above a threshold in one chunk. Chunks are searched one by one, so
// that the caller can raise the threshold in between.
struct ChunkMask {
  int begin = 0;      // start in the block; `size` if no chunk is left
  uint64_t mask = 0;  // bit i: values[begin + i] > threshold
};
// Returns the first chunk with such a score at or after `begin`, a multiple of
// kChunkSize.
ChunkMask FirstAbove(const float* values, int begin, int size, float threshold);

}  // namespace espalier
