// Reads all tiles of many rows once. Row blockIdx.y; a block reads a run of
// tiles, its warps in turn, and loads each piece while it works on the previous
// one.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/cuda.h"
#include "base/cuda_launch.cuh"
#include "kernels/logits/cuda_row_pieces.cuh"

namespace espalier::cuda_logits {

struct ReadPolicy {
  // Warps work separately; eight make a block whose end is cheap to wait for.
  static constexpr int kMaxWarps = 8;
  static constexpr int kMaxThreads = kMaxWarps * kWarpSize;
  // Blocks of a small input have fewer warps, down to one, as long as half of
  // the multiprocessors hold them. Each multiprocessor then reads less at a
  // time, and merging blocks, which need one of their own, find a free one and
  // start before reading ends.
  static constexpr int kMultiprocessorsPerBlock = 2;
  // 64 registers a thread hold the current piece and the next one in flight.
  static constexpr int kMinBlocks = 4;
  // Many tiles a warp hide the start of blocks; few tiles spread a small input
  // over the device.
  static constexpr int kMaxTilesPerWarp = 2;
};

struct ReadShape {
  LaunchConfig launch;
  int tiles_per_warp;
};

// Assumes that all rows are read, as only the device knows which ones are.
inline ReadShape ShapeOfReading(int num_rows, int num_tiles,
                                const CudaDevice& device) {
  const int resident =
      device.num_sms * ReadPolicy::kMinBlocks * ReadPolicy::kMaxWarps;
  const int64_t tiles = int64_t{num_rows} * num_tiles;
  const int warps = static_cast<int>(std::clamp<int64_t>(
      (tiles * ReadPolicy::kMultiprocessorsPerBlock + device.num_sms - 1) /
          device.num_sms,
      1, ReadPolicy::kMaxWarps));
  const int per_warp = static_cast<int>(
      std::clamp<int64_t>(tiles / resident, 1, ReadPolicy::kMaxTilesPerWarp));
  const int per_block = warps * per_warp;
  const unsigned blocks = (num_tiles + per_block - 1) / per_block;
  return {.launch = {.grid = dim3(blocks, num_rows),
                     .block = dim3(warps * kWarpSize),
                     .dependency = GridDependency::kReadsEarly},
          .tiles_per_warp = per_warp};
}

// The tiles of a warp: every stride-th of [begin, end).
struct WarpTiles {
  int begin;
  int end;
  int stride;

  __device__ WarpTiles(int num_tiles, int tiles_per_warp)
      : stride(blockDim.x / kWarpSize) {
    begin = blockIdx.x * stride * tiles_per_warp + threadIdx.x / kWarpSize;
    end = min(num_tiles, begin + (tiles_per_warp - 1) * stride + 1);
  }
  __device__ bool any() const { return begin < end; }
};

// Calls visit(piece, tile, second) for both pieces of each tile; `next` is the
// first piece of the first tile, in flight.
template <typename T, typename Visit>
__device__ void ForEachPiece(const RowPieces<T>& row, const WarpTiles& tiles,
                             LanePiece<T> next, const Visit& visit) {
#pragma unroll 1
  for (int tile = tiles.begin, second = 0; tile < tiles.end;) {
    const LanePiece<T> piece = next;
    const int next_tile = second ? tile + tiles.stride : tile;
    if (next_tile < tiles.end) next = row.Load(2 * next_tile + 1 - second);
    visit(piece, tile, second);
    tile = next_tile;
    second = 1 - second;
  }
}

}  // namespace espalier::cuda_logits
