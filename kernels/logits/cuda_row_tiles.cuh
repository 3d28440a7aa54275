// Statistics of a row's tiles: its softmax, and the best maxima per lane of a
// warp (tiles: cuda_row_logits.cuh).
#pragma once

#include "kernels/cuda_ptx.cuh"
#include "kernels/logits/cuda_row_logits.cuh"

namespace espalier::cuda_logits {

// exp(d) to 2^-22 for d <= 0; tiny results are 0.
__device__ inline float FastExp(float d) {
  return Exp2(__fmul_rn(d, 1.44269504f));
}

// Maximum over the lanes that have read a quarter of a tile.
__device__ inline float MaxOverQuarter(float x) {
  return LaneGroupMax<kWarpSize / kQuarters>(x);
}

// Broadcasts the values of a warp's four quarters, of which a lane has its own.
__device__ inline float4 OfQuarters(float x) {
  constexpr int kLanes = kWarpSize / kQuarters;
  return {__shfl_sync(kAllLanes, x, 0), __shfl_sync(kAllLanes, x, kLanes),
          __shfl_sync(kAllLanes, x, 2 * kLanes),
          __shfl_sync(kAllLanes, x, 3 * kLanes)};
}

// A sum of exp(x - max), with infinite maxima as in kernels/select/select.h.
// The empty sum is (-inf, 0).
struct LogSum {
  float max = -__builtin_inff();
  float sum = 0;

  // The sum relative to `top`, which is not below max.
  __device__ float Scaled(float top) const {
    return max == top ? sum : __fmul_rn(sum, FastExp(max - top));
  }
};

// Combines the sums of a warp's lanes; every lane gets the result.
__device__ inline LogSum WarpLogSum(const LogSum& lane) {
  const float max = WarpMax(lane.max);
  return {max, WarpSum(lane.Scaled(max))};
}

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

// A lane's tiles `first`, `first` + 32, and so on: all its tiles of a row of up
// to 131,072 logits.
constexpr int kBatch = 4;
constexpr int kBatchStride = kBatch * kWarpSize;

// Adds a lane's tiles of a batch to its sum; load(tile) returns a tile's sum.
template <typename Load>
__device__ inline void AddTiles(int first, int num_tiles, const Load& load,
                                LogSum& total) {
  LogSum of[kBatch];
  float top = total.max;
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    const int tile = first + i * kWarpSize;
    if (tile < num_tiles) of[i] = load(tile);
    top = fmaxf(top, of[i].max);
  }
  float sum = total.Scaled(top);
#pragma unroll
  for (int i = 0; i < kBatch; ++i) sum += of[i].Scaled(top);
  total = {top, sum};
}

// Adds sums of a batch's tiles, relative to their maxima; (-inf, 0) is none.
__device__ inline void AddSums(const float (&maxima)[kBatch],
                               const float (&sums)[kBatch], LogSum& total) {
  float top = total.max;
#pragma unroll
  for (int i = 0; i < kBatch; ++i) top = fmaxf(top, maxima[i]);
  float sum = total.Scaled(top);
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    sum += LogSum{maxima[i], sums[i]}.Scaled(top);
  }
  total = {top, sum};
}

// The maxima of such tiles; -inf for missing tiles.
struct TileBatch {
  float4 maxima[kBatch];

  TileBatch() = default;
  __device__ TileBatch(const float* row_maxima, int first, int tiles) {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      // Past the end the last tile is loaded again, so that no load depends on
      // a branch.
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
#pragma unroll
    for (int i = 0; i < kBatch; ++i) max[i] = MaxOf(maxima[i]);
    AddSums(max, sums, total);
  }
};

}  // namespace espalier::cuda_logits
