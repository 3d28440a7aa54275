// Statistics of a row's tiles in selection: its softmax, and the best maxima
// per lane of a warp.
#pragma once

#include "kernels/logits/cuda_row_tiles.cuh"
#include "kernels/select/cuda_select_row.cuh"

namespace espalier::cuda_select {

using cuda_logits::kBatch;
using cuda_logits::kBatchStride;
using cuda_logits::LogSum;
using cuda_logits::MaxOf;
using cuda_logits::MaxOverQuarter;
using cuda_logits::QuarterMaxima;
using cuda_logits::TileBatch;

// Statistics of a row's tiles, in any memory.
struct RowTiles {
  const float* maxima;  // [tiles, 4]
  const float* sums;    // [tiles]
  int tiles;
};

__device__ inline RowTiles TilesOf(const Params& p, int row) {
  return {p.scratch.maxima + size_t(row) * p.tiles * kQuarters,
          p.scratch.sums + size_t(row) * p.tiles, p.tiles};
}

// One warp: computes the row's softmax from its tiles, and each lane's maxima;
// `batch` has the first tiles. A dead row has no candidates.
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
  const LogSum sum = WarpLogSum(total);
  stats.log_sum = logf(sum.sum);
  // A dead row's tiles are stale.
  if (stats.cum > MinusInf()) stats.max = sum.max;
  return stats;
}

// One warp: returns the same maxima, read again.
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
