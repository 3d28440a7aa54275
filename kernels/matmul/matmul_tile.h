// MultiplyTile: the SIMD core of MatMul. A tile is a few rows of x times a run
// of weight panels over one block of k. The rows of x are a small copy with a
// constant stride: it stays in the first-level cache, its rows do not compete
// for the same cache sets (as rows of a power-of-two width do), and the inner
// loop needs one address register for all of them.
//
// Dividing k into blocks changes no bits: each block continues the chain of
// multiply-adds from y, which holds its float32 value exactly.
#pragma once

#include <cstddef>

#include "base/dtype.h"

namespace espalier {

// Outputs in a panel: two vectors of AVX-512, four of AVX2.
inline constexpr int kPanelWidth = 32;
// Steps of k in a block: 12 rows of them fill a third of a 32 KiB cache.
inline constexpr int kBlockDepth = 256;
// Floats from one row of a tile to the next: one cache line more than a block.
inline constexpr int kTileStride = kBlockDepth + 16;
// No CPU's MaxTileRows() is larger.
inline constexpr int kTileRowsLimit = 12;
inline constexpr int kCacheLineBytes = 64;

// Prefetch distance of PrefetchNear. With 1 KiB of float32 weights, one and
// four rows took 16 % longer on a Zen 4.
inline constexpr int kNearBytes = 1024;
inline constexpr int kNearFloat32Bytes = 4096;

// Weights are prefetched a cache line at a time: the lines of the next panel
// into the second-level cache, the lines needed soon from there into the first.
// The hardware prefetcher stops at the end of a page, and with several rows the
// computation keeps it from running far ahead. An address may lie past the end
// of the weights: a prefetch never faults.
inline void PrefetchFar(const void* line_of_next_panel) {
  __builtin_prefetch(line_of_next_panel, /*rw=*/0, /*locality=*/2);
}
inline void PrefetchNear(const void* line, int num_bytes) {
  __builtin_prefetch(static_cast<const std::byte*>(line) + num_bytes);
}

struct MatMulTile {
  const float* x = nullptr;       // [num_rows, kTileStride]
  int num_rows = 0;               // in [1, MaxTileRows()]
  int depth = 0;                  // steps of k, in [1, kBlockDepth]
  DType dtype = DType::kFloat32;  // weight type
  // The first panel at the first k of the block; the next panel is
  // `panel_bytes` further.
  const std::byte* panels = nullptr;
  size_t panel_bytes = 0;
  int num_panels = 0;
  // Address to prefetch after the last panel; never read. Not null.
  const std::byte* next_panels = nullptr;
  float* y = nullptr;  // [num_rows, y_stride], num_panels * kPanelWidth wide
  size_t y_stride = 0;
  bool accumulate = false;  // continue from y, else start at zero
  bool is_cached = true;    // a cache may hold all panels
};

// Returns the number of rows whose sums this CPU can keep in registers.
int MaxTileRows();

void MultiplyTile(const MatMulTile& tile);

}  // namespace espalier
