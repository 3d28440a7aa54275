// Statistics of a row's tiles in selection: its softmax, and the best maxima
// per lane of a warp.
#pragma once

#include "kernels/logits/cuda_row_tiles.cuh"
#include "kernels/select/cuda_select_row.cuh"

namespace espalier::cuda_select {

using cuda_logits::AddSums;
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
  // [tiles]  maxima that the sums are relative to; null: as `maxima`.
  const float* tops = nullptr;
};

template <typename T>
__device__ RowTiles TilesOf(const Params& p, int row,
                            const CudaRowEdits& row_edits) {
  const size_t first = size_t(row) * p.tiles;
  return {
      p.scratch.maxima + first * kQuarters, p.scratch.sums + first, p.tiles,
      kIsMasked<T> && row_edits.mask >= 0 ? p.scratch.tops + first : nullptr};
}

// One warp: computes the row's softmax from its tiles, and each lane's maxima;
// `batch` has the first tiles. A dead row has no candidates.
__device__ inline RowStats SumTiles(const RowTiles& row, float cum,
                                    TileBatch& batch, QuarterMaxima& own) {
  const int lane = threadIdx.x % kWarpSize;
  const auto load = [&](const float* of_tiles, int first, float missing,
                        float(&to)[kBatch]) {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      to[i] = of_tiles[min(first + i * kWarpSize, row.tiles - 1)];
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i * kWarpSize >= row.tiles) to[i] = missing;
    }
  };
  RowStats stats;
  stats.cum = cum;
  LogSum total;
  const auto add = [&](int first, const TileBatch& tiles) {
    float sums[kBatch], tops[kBatch];
    load(row.sums, first, 0, sums);
    tiles.AddTo(own);
    if (row.tops == nullptr) {
      tiles.AddTo(total, sums);
    } else {
      load(row.tops, first, MinusInf(), tops);
      AddSums(tops, sums, total);
    }
  };
  batch = TileBatch(row.maxima, lane, row.tiles);
  add(lane, batch);
#pragma unroll 1
  for (int first = lane + kBatchStride; first < row.tiles;
       first += kBatchStride) {
    add(first, TileBatch(row.maxima, first, row.tiles));
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
