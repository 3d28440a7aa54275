// Statistics of a tile of logits, computed by one warp from two pieces: the
// maxima of its quarters and their sums of weights, both after edits, and the
// sum of exponentials before edits. The order of arithmetic is fixed, so that
// every kernel gets the same bits.
#pragma once

#include "kernels/sample/cuda_sample_edits.cuh"

namespace espalier::cuda_sample {

using cuda_logits::LogSum;

// The weighing of a row's tokens.
struct Weighing {
  float scale = 0;      // exponent factor (ExponentScale)
  bool wanted = false;  // a draw reads the weights
  // True if, without edits, the sums of raw exponentials serve as weights.
  bool raw = true;

  Weighing() = default;
  __device__ Weighing(const SamplingParams& params, int vocab_size)
      : scale(ExponentScale(params.temperature)),
        wanted(NeedsWeights(params, vocab_size)),
        raw(params.temperature == 1.0f || !wanted) {}
};

// A lane's share of a tile.
struct LaneTile {
  LogSum raw;
  float max = -__builtin_inff();  // edited maximum
  float weights = 0;              // sum of weights, relative to that of `max`
  bool nan = false;
};

// 2^x as Exp2, but volatile, so that the compiler does not move it: with 32 in
// flight at once it would spill registers.
__device__ inline float Exp2InPlace(float x) {
  float e;
  asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x));
  return e;
}

// Returns the sum of exp(x - max), in the order of SumOfExp, and that of
// weights.
__device__ inline float2 SumsOf(const float (&x)[16], float max, float scale) {
  float sums[4] = {};
  float weights[4] = {};
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const float difference = x[i] - max;
    sums[i % 4] += Exp2InPlace(__fmul_rn(difference, 1.44269504f));
    weights[i % 4] += Exp2InPlace(__fmul_rn(difference, scale));
  }
  return {(sums[0] + sums[1]) + (sums[2] + sums[3]),
          (weights[0] + weights[1]) + (weights[2] + weights[3])};
}

// Handles NaN. Rare, so it is not inlined.
static __device__ __noinline__ float2 CarefulSumsOf(const float (&x)[16],
                                                    float max, float scale,
                                                    bool& nan) {
#pragma unroll
  for (int i = 0; i < 16; ++i) nan |= x[i] != x[i];
  return {cuda_logits::CarefulSumOfExp(x, max),
          SumOfWeightsNanSafe(x, max, scale)};
}

// Adds a lane's logits of a piece of a tile without edits. Raw sums have the
// bits of AddLogits (cuda_row_pieces.cuh).
__device__ inline void AddPiece(const float (&x)[16], const Weighing& weighing,
                                LaneTile& lane) {
  float top = lane.raw.max;
#pragma unroll
  for (int i = 0; i < 16; ++i) top = fmaxf(top, x[i]);  // ignores NaN
  float2 sums = weighing.raw ? float2{cuda_logits::SumOfExp(x, top), 0}
                             : SumsOf(x, top, weighing.scale);
  if (cuda_logits::IsNan(sums.x)) {
    float copy[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) copy[i] = x[i];
    bool nan = false;
    sums = CarefulSumsOf(copy, top, weighing.scale, nan);
    lane.nan |= nan;
  }
  lane.weights =
      WeightSum{lane.raw.max, lane.weights}.Scaled(top, weighing.scale) +
      sums.y;
  lane.raw = {top, lane.raw.Scaled(top) + sums.x};
  lane.max = top;
}

// AddPiece in two parts, for a tile with edits: adds raw logits,
__device__ inline void AddRaw(const float (&x)[16], LaneTile& lane) {
  cuda_logits::AddLogits(x, lane.raw, [&] {
#pragma unroll
    for (int i = 0; i < 16; ++i) lane.nan |= x[i] != x[i];
  });
}

__device__ inline float SumOfWeights(const float (&x)[16], float max,
                                     float scale) {
  float sums[4] = {};
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    sums[i % 4] += Exp2InPlace(__fmul_rn(x[i] - max, scale));
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// and of edited ones.
__device__ inline void AddEdited(const float (&x)[16], const Weighing& weighing,
                                 LaneTile& lane) {
  float top = lane.max;
#pragma unroll
  for (int i = 0; i < 16; ++i) top = fmaxf(top, x[i]);
  if (weighing.wanted) {
    float sum = SumOfWeights(x, top, weighing.scale);
    if (cuda_logits::IsNan(sum)) {
      sum = SumOfWeightsNanSafe(x, top, weighing.scale);
    }
    lane.weights =
        WeightSum{lane.max, lane.weights}.Scaled(top, weighing.scale) + sum;
  }
  lane.max = top;
}

// Statistics of a tile after the reduction over the warp.
struct TileTotals {
  // For this lane's quarter.
  float max;
  float sum;
  RawTile raw;
};

__device__ inline TileTotals FinishTile(const LaneTile& own,
                                        const Weighing& weighing, bool edited) {
  TileTotals totals;
  totals.max = cuda_logits::MaxOverQuarter(own.max);
  totals.sum = weighing.raw && !edited ? own.raw.Scaled(totals.max)
                                       : WeightSum{own.max, own.weights}.Scaled(
                                             totals.max, weighing.scale);
  totals.sum = LaneGroupSum<kWarpSize / kQuarters>(totals.sum);
  const LogSum raw = WarpLogSum(own.raw);
  totals.raw = {raw.max, __any_sync(kAllLanes, own.nan) ? NAN : raw.sum};
  return totals;
}

}  // namespace espalier::cuda_sample
