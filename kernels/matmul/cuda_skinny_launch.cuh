// Launches the kernels for few rows of x (cuda_skinny_matmul.cuh, and for e4m3
// weights cuda_fp8_skinny.cu). Each tiling is an instance, chosen by the rows
// of x and by the division of the product. Host code.
//
//   struct Family {
//     using Args = ...;          // with num_rows; what a launch passes
//     // Tiles of eight rows of x; tiles of 16 outputs.
//     static constexpr int kMaxColTiles = ...;
//     static constexpr int MaxRowTiles(int col_tiles);
//     template <int kColTiles, int kRowTiles>
//     using TilingOf = ...;      // a skinny_matmul::Tiling
//     template <typename Tiling>
//     static auto Kernel();      // void (*)(Args), of Shared<Tiling> bytes
//   };
#pragma once

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "base/ceil_div.h"
#include "base/cuda_launch.cuh"
#include "base/status.h"
#include "kernels/matmul/cuda_skinny_matmul.cuh"
#include "kernels/matmul/cuda_skinny_matmul.h"

namespace espalier {
namespace skinny_matmul {

// Calls function(Tiling) with kColTiles tiles of eight rows of x and
// `row_tiles` tiles of 16 outputs.
template <typename Family, int kColTiles, int kRowTiles = 1, typename Function>
absl::Status WithRowTiles(int row_tiles, Function function) {
  if constexpr (kRowTiles < Family::MaxRowTiles(kColTiles)) {
    if (row_tiles > kRowTiles) {
      return WithRowTiles<Family, kColTiles, kRowTiles + 1>(row_tiles,
                                                            function);
    }
  }
  return function(typename Family::template TilingOf<kColTiles, kRowTiles>());
}
template <typename Family, int kColTiles = 1, typename Function>
absl::Status WithTiling(int col_tiles, int row_tiles, Function function) {
  if constexpr (kColTiles < Family::kMaxColTiles) {
    if (col_tiles > kColTiles) {
      return WithTiling<Family, kColTiles + 1>(col_tiles, row_tiles, function);
    }
  }
  return WithRowTiles<Family, kColTiles>(row_tiles, function);
}

// Returns the tiles of eight rows of x.
inline int ColTiles(int num_rows) { return CeilDiv(num_rows, 8); }

// Enqueues the product. A block multiplies all rows of x.
template <typename Family>
absl::Status Enqueue(const typename Family::Args& args,
                     const SkinnyDivision& division, cudaStream_t stream) {
  const auto launch = [&]<typename Tiling>(Tiling) {
    return Launch(Family::template Kernel<Tiling>(),
                  {.grid = dim3(division.splits, division.groups),
                   .block = Tiling::kThreads,
                   .shared_bytes = sizeof(Shared<Tiling>),
                   .cluster = division.splits},
                  stream, args);
  };
  return WithTiling<Family>(ColTiles(args.num_rows), division.row_tiles,
                            launch);
}

// Returns the shared memory of the largest tiling with kColTiles tiles of rows.
template <typename Family, int kColTiles, int kRowTiles = 1>
constexpr size_t MaxSharedBytes() {
  constexpr size_t kBytes =
      sizeof(Shared<typename Family::template TilingOf<kColTiles, kRowTiles>>);
  if constexpr (kRowTiles < Family::MaxRowTiles(kColTiles)) {
    return std::max(kBytes, MaxSharedBytes<Family, kColTiles, kRowTiles + 1>());
  } else {
    return kBytes;
  }
}

// True if the device has enough shared memory for all tilings with `col_tiles`.
template <typename Family, int kColTiles = 1>
bool HasSharedBytes(int col_tiles, const CudaDevice& device) {
  if constexpr (kColTiles < Family::kMaxColTiles) {
    if (col_tiles > kColTiles) {
      return HasSharedBytes<Family, kColTiles + 1>(col_tiles, device);
    }
  }
  constexpr size_t kBytes = MaxSharedBytes<Family, kColTiles>();
  return device.max_shared_bytes >= static_cast<int>(kBytes);
}

// Opts every instance that fits on the device in to its shared memory. Call
// once, before the first launch. All get the same carve-out of L1, the most
// shared memory there is, as blocks of two kernels share a multiprocessor only
// if their carve-outs agree.
template <typename Family>
absl::Status Prepare(const CudaDevice& device) {
  const auto prepare = []<typename Tiling>(Tiling) -> absl::Status {
    const auto kernel = Family::template Kernel<Tiling>();
    RETURN_IF_ERROR(SetMaxDynamicSharedMemory(kernel, sizeof(Shared<Tiling>)));
    RETURN_IF_CUDA_ERROR(cudaFuncSetAttribute(
        kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
        cudaSharedmemCarveoutMaxShared));
    return absl::OkStatus();
  };
  for (int col_tiles = 1; col_tiles <= Family::kMaxColTiles; ++col_tiles) {
    if (!HasSharedBytes<Family>(col_tiles, device)) continue;
    for (int row_tiles = 1; row_tiles <= Family::MaxRowTiles(col_tiles);
         ++row_tiles) {
      RETURN_IF_ERROR(WithTiling<Family>(col_tiles, row_tiles, prepare));
    }
  }
  return absl::OkStatus();
}

}  // namespace skinny_matmul
}  // namespace espalier
