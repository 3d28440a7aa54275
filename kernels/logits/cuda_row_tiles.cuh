// What the tiles of a row come to: its softmax, and the best maxima that each
// lane of a warp has of it (cuda_select_row.cuh says what tiles are).
#pragma once

#include "kernels/select/cuda_select_row.cuh"

namespace espalier::cuda_select {

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

// A sum of exp(x - max). Infinite maxima count, as select.h says; nothing is
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

// What a row's tiles have come to, in any memory.
struct RowTiles {
  const float* maxima;  // [tiles, 4]
  const float* sums;    // [tiles]
  int tiles;
};

__device__ inline RowTiles TilesOf(const Params& p, int row) {
  return {p.scratch.maxima + size_t(row) * p.tiles * kQuarters,
          p.scratch.sums + size_t(row) * p.tiles, p.tiles};
}

// One warp: the row's softmax from its tiles, and each lane's maxima, of which
// `batch` are the first. A dead row comes out as one that offers nothing.
__device__ inline RowStats SumTiles(const RowTiles& row, float cum,
                                    TileBatch& batch, QuarterMaxima& own) {
  const int lane = threadIdx.x % kWarpSize;
  const auto load_sums = [&](int first, float(&to)[kBatch]) {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      to[i] = row.sums[min(first + i * kWarpSize, row.tiles - 1)];
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i * kWarpSize >= row.tiles) to[i] = 0;
    }
  };
  RowStats stats;
  stats.cum = cum;
  LogSum total;
  float batch_sums[kBatch];
  batch = TileBatch(row.maxima, lane, row.tiles);
  load_sums(lane, batch_sums);
  batch.AddTo(own);
  batch.AddTo(total, batch_sums);
#pragma unroll 1
  for (int first = lane + kBatchStride; first < row.tiles;
       first += kBatchStride) {
    const TileBatch more(row.maxima, first, row.tiles);
    load_sums(first, batch_sums);
    more.AddTo(own);
    more.AddTo(total, batch_sums);
  }
  const float top = MaxOverWarp(total.max);
  stats.log_sum = logf(SumOverWarp(total.Scaled(top)));
  // A dead row's tiles are from another step.
  if (stats.cum > MinusInf()) stats.max = top;
  return stats;
}

// One warp: the same maxima, read again.
__device__ inline QuarterMaxima ReadMaxima(const float* row_maxima, int tiles,
                                           TileBatch& batch) {
  const int lane = threadIdx.x % kWarpSize;
  QuarterMaxima own;
  batch = TileBatch(row_maxima, lane, tiles);
  batch.AddTo(own);
#pragma unroll 1
  for (int first = lane + kBatchStride; first < tiles; first += kBatchStride) {
    TileBatch(row_maxima, first, tiles).AddTo(own);
  }
  return own;
}

}  // namespace espalier::cuda_select
