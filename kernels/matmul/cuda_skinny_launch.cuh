// Launching the kernels of few rows of x (cuda_skinny_matmul.cuh, and for e4m3
// weights cuda_fp8_skinny.cu): one instance a tiling, chosen by the rows of x
// and by how the product is divided. Host code.
//
//   struct Family {
//     using Args = ...;          // with num_rows; what a launch passes
//     template <int kColTiles, int kRowTiles>
//     using TilingOf = ...;      // a skinny_matmul::Tiling
//     template <typename Tiling>
//     static auto Kernel();      // void (*)(Args), of Shared<Tiling> bytes
//   };
#pragma once

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "base/cuda_launch.cuh"
#include "base/status.h"
#include "kernels/matmul/cuda_skinny_matmul.cuh"
#include "kernels/matmul/cuda_skinny_matmul.h"

namespace espalier {
namespace skinny_matmul {

// Rows of x that there are tilings for. At 32 every block would read as many
// bytes of x as of w, and cuBLASLt is 1.2 times as fast.
constexpr int kMaxRows = 16;
constexpr int kMaxRowTiles = 4;

// function(Tiling) of the tiling with so many tiles of 16 outputs.
template <typename Family, int kColTiles, typename Function>
absl::Status WithTiling(int row_tiles, Function function) {
  switch (row_tiles) {
    case 1:
      return function(typename Family::template TilingOf<kColTiles, 1>());
    case 2:
      return function(typename Family::template TilingOf<kColTiles, 2>());
    case 3:
      return function(typename Family::template TilingOf<kColTiles, 3>());
    default:
      return function(typename Family::template TilingOf<kColTiles, 4>());
  }
}

// Enqueues the product. A block multiplies eight rows of x, or sixteen.
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
  return args.num_rows <= 8 ? WithTiling<Family, 1>(division.row_tiles, launch)
                            : WithTiling<Family, 2>(division.row_tiles, launch);
}

// Lets every instance have its shared memory; once, before the first launch.
// The same division of L1 for all, the most shared memory there is: blocks of
// two kernels can meet on a multiprocessor only if they agree on it.
template <typename Family>
absl::Status Prepare() {
  const auto prepare = []<typename Tiling>(Tiling) -> absl::Status {
    const auto kernel = Family::template Kernel<Tiling>();
    RETURN_IF_ERROR(SetMaxDynamicSharedMemory(kernel, sizeof(Shared<Tiling>)));
    RETURN_IF_CUDA_ERROR(cudaFuncSetAttribute(
        kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
        cudaSharedmemCarveoutMaxShared));
    return absl::OkStatus();
  };
  for (int row_tiles = 1; row_tiles <= kMaxRowTiles; ++row_tiles) {
    RETURN_IF_ERROR((WithTiling<Family, 1>(row_tiles, prepare)));
    RETURN_IF_ERROR((WithTiling<Family, 2>(row_tiles, prepare)));
  }
  return absl::OkStatus();
}

// What the largest tiling asks for.
template <typename Family, int kColTiles>
constexpr size_t MaxSharedBytes() {
  return std::max(
      {sizeof(Shared<typename Family::template TilingOf<kColTiles, 1>>),
       sizeof(Shared<typename Family::template TilingOf<kColTiles, 2>>),
       sizeof(Shared<typename Family::template TilingOf<kColTiles, 3>>),
       sizeof(Shared<typename Family::template TilingOf<kColTiles, 4>>)});
}
template <typename Family>
constexpr size_t kMaxSharedBytes = std::max(MaxSharedBytes<Family, 1>(),
                                            MaxSharedBytes<Family, 2>());

// Whether the device has room for every instance.
template <typename Family>
bool HasSharedBytes(const CudaDevice& device) {
  return device.max_shared_bytes >= static_cast<int>(kMaxSharedBytes<Family>);
}

}  // namespace skinny_matmul
}  // namespace espalier
