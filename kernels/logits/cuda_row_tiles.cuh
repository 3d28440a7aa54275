// What the tiles of a row come to: its softmax, and the best maxima that each
// lane of a warp has of it (cuda_row_logits.cuh says what tiles are).
#pragma once

#include "kernels/logits/cuda_row_logits.cuh"

namespace espalier::cuda_logits {

// exp(d) to 2^-22 for d <= 0; tiny results are 0.
__device__ inline float FastExp(float d) {
  float e;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(__fmul_rn(d, 1.44269504f)));
  return e;
}

// Over the lanes that have read a quarter of a tile.
__device__ inline float MaxOverQuarter(float x) {
#pragma unroll
  for (int distance = 1; distance < kWarpSize / kQuarters; distance *= 2) {
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, distance));
  }
  return x;
}

__device__ inline float MaxOverWarp(float x) {
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, distance));
  }
  return x;
}

__device__ inline float SumOverWarp(float x) {
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(kAllLanes, x, distance);
  }
  return x;
}

// A sum of exp(x - max). Infinite maxima count, as kernels/select/select.h
// says; nothing is
// (-inf, 0).
struct LogSum {
  float max = -__builtin_inff();
  float sum = 0;

  // The sum relative to `top`, which is not below max.
  __device__ float Scaled(float top) const {
    return max == top ? sum : __fmul_rn(sum, FastExp(max - top));
  }
};

__device__ inline float MaxOf(const float4& q) {
  return fmaxf(fmaxf(q.x, q.y), fmaxf(q.z, q.w));
}

// The best of a lane's first quarters, second quarters, and so on.
struct QuarterMaxima {
  float4 best = {-__builtin_inff(), -__builtin_inff(), -__builtin_inff(),
                 -__builtin_inff()};

  __device__ void Add(const float4& q) {
    best.x = fmaxf(best.x, q.x);
    best.y = fmaxf(best.y, q.y);
    best.z = fmaxf(best.z, q.z);
    best.w = fmaxf(best.w, q.w);
  }
};

// The maxima of a lane's tiles `first`, `first` + 32, and so on: all it has of
// a row of up to 131,072 logits. -inf where there is no tile.
constexpr int kBatch = 4;
constexpr int kBatchStride = kBatch * kWarpSize;

struct TileBatch {
  float4 maxima[kBatch];

  TileBatch() = default;
  __device__ TileBatch(const float* row_maxima, int first, int tiles) {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      // The last one stands in, so that no load waits for a decision.
      const int tile = min(first + i * kWarpSize, tiles - 1);
      maxima[i] = reinterpret_cast<const float4*>(row_maxima)[tile];
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i * kWarpSize >= tiles) maxima[i] = QuarterMaxima().best;
    }
  }

  __device__ void AddTo(QuarterMaxima& own) const {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) own.Add(maxima[i]);
  }

  // Adds the tiles' sums.
  __device__ void AddTo(LogSum& total, const float (&sums)[kBatch]) const {
    float max[kBatch];
    float top = total.max;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      max[i] = MaxOf(maxima[i]);
      top = fmaxf(top, max[i]);
    }
    float sum = total.Scaled(top);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) sum += LogSum{max[i], sums[i]}.Scaled(top);
    total = {top, sum};
  }
};

}  // namespace espalier::cuda_logits
