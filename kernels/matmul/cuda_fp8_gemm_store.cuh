// The epilogue of the e4m3 kernel (cuda_fp8_gemm_tiles.cuh): stores the sums as
// float32 or bfloat16, adds them to `out`, or stores silu(gate) * up.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/matmul/cuda_fp8_gemm_tiles.cuh"
#include "kernels/matmul/cuda_silu_mul.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

namespace espalier {
namespace fp8_gemm {

// Waits at the named barrier of the consumers.
__device__ __forceinline__ void SyncConsumers() {
  asm volatile("bar.sync 1, %0;" ::"n"(GemmPolicy::kConsumerThreads)
               : "memory");
}

// With sliced-K both warpgroups have sums of the same outputs. The first keeps
// this many of a thread's sums, the second the rest.
template <typename Shape>
constexpr int kKeptByFirst = Shape::kRows / (Shape::kRows < 16 ? 2 : 4);

// Each warpgroup sends the sums that it does not keep to the other, through the
// ring's slots, which are free by now, and adds the sums that it receives.
template <typename Shape>
__device__ __forceinline__ void ReduceWarpgroups(Sums<Shape::kRows>& sums,
                                                 float* staged) {
  constexpr int kFirst = kKeptByFirst<Shape>;
  const int thread = threadIdx.x % GemmPolicy::kWarpgroupThreads;
  const int group = threadIdx.x / GemmPolicy::kWarpgroupThreads;
  SyncConsumers();
#pragma unroll
  for (int i = 0; i < Shape::kRows / 2; ++i) {
    if ((i < kFirst) == (group == 1)) {
      staged[i * GemmPolicy::kWarpgroupThreads + thread] = sums.values[i];
    }
  }
  SyncConsumers();
#pragma unroll
  for (int i = 0; i < Shape::kRows / 2; ++i) {
    if ((i < kFirst) == (group == 0)) {
      sums.values[i] += staged[i * GemmPolicy::kWarpgroupThreads + thread];
    }
  }
}

// True if a thread keeps the sums of rows [8 j, 8 j + 8).
template <typename Shape>
__device__ __forceinline__ bool HasRows(int j) {
  const int group = threadIdx.x / GemmPolicy::kWarpgroupThreads;
  return !Shape::kIsSlicedK || (4 * j < kKeptByFirst<Shape>) == (group == 0);
}

// Visits a thread's sums of a tile. For 8 outputs the lanes store 32 bytes of
// f32.
//   store(row, output, sum of the output, sum of the output + 8)
template <typename Shape, typename Store>
__device__ __forceinline__ void ForEachSum(const GemmWork& work,
                                           int first_output,
                                           const Sums<Shape::kRows>& sums,
                                           Store store) {
  const int lane = threadIdx.x % 32;
  const int output = first_output + threadIdx.x / 32 % 4 * 16 + lane / 4;
#pragma unroll
  for (int j = 0; j < Shape::kRows / 8; ++j) {
    if (!HasRows<Shape>(j)) continue;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int row = FirstRow<Shape>() + 8 * j + lane % 4 * 2 + k;
      if (row >= work.num_rows) continue;
      store(row, output, sums.values[4 * j + k], sums.values[4 * j + 2 + k]);
    }
  }
}

__device__ __forceinline__ uint32_t Pair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}

// A block's bfloat16 results, staged over the slots and stored in whole cache
// lines. Rows of eights are as long as the banks or longer, so that places are
// XOR-swizzled by row.
template <typename Shape, bool kGated>
struct StagedResults {
  static constexpr int kEights = Shape::kOutputs / 8 / (kGated ? 2 : 1);
  char* memory;

  __device__ __forceinline__ char* Place(int row, int eight) const {
    return memory +
           (row * kEights + (eight ^ row % (kEights < 8 ? 4 : 8))) * 16;
  }
  // Adds a tile of the block.
  __device__ __forceinline__ void Add(int tile,
                                      const Sums<Shape::kRows>& sums) const {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32 % 4;
    const float(&d)[Shape::kRows / 2] = sums.values;
#pragma unroll
    for (int j = 0; j < Shape::kRows / 8; j += 4) {
      if (!HasRows<Shape>(j)) continue;
#pragma unroll
      for (int i = 0; i < (kGated ? 1 : 2); ++i) {
        uint32_t pairs[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int at = 4 * (j + c) + 2 * i;
          pairs[c] = kGated ? Pair(SiluMul(d[at], d[at + 2]),
                                   SiluMul(d[at + 1], d[at + 3]))
                            : Pair(d[at], d[at + 1]);
        }
        const int eight = kGated ? tile * 4 + warp : tile * 8 + 2 * warp + i;
        StMatrixX4Trans(pairs, Place(8 * j + lane, eight));
      }
    }
  }
  __device__ __forceinline__ void Store(const GemmWork& work) const {
    const int64_t width = work.num_outputs / (kGated ? 2 : 1);
    __nv_bfloat16* const out = static_cast<__nv_bfloat16*>(work.out) +
                               FirstRow<Shape>() * width +
                               blockIdx.x * kEights * 8;
    const int num_rows = min(Shape::kRows, work.num_rows - FirstRow<Shape>());
    for (int i = threadIdx.x; i < num_rows * kEights;
         i += GemmPolicy::kConsumerThreads) {
      const int row = i / kEights, eight = i % kEights;
      *reinterpret_cast<uint4*>(out + row * width + eight * 8) =
          *reinterpret_cast<const uint4*>(Place(row, eight));
    }
  }
};

// Stores few rows, number by number.
template <typename Shape, bool kGated>
__device__ __forceinline__ void StoreEach(const GemmWork& work,
                                          int first_output,
                                          const Sums<Shape::kRows>& sums) {
  const auto out = static_cast<__nv_bfloat16*>(work.out);
  const int64_t width = work.num_outputs / (kGated ? 2 : 1);
  ForEachSum<Shape>(work, first_output, sums,
                    [&](int row, int output, float a, float b) {
                      if (kGated) {
                        out[row * width + output / 16 * 8 + output % 16] =
                            __nv_bfloat16(SiluMul(a, b));
                      } else {
                        out[row * width + output] = __nv_bfloat16(a);
                        out[row * width + output + 8] = __nv_bfloat16(b);
                      }
                    });
}

template <typename Shape, bool kGated>
__device__ __forceinline__ void StoreHalves(
    const GemmWork& work, int first_tile, char* slots,
    const Sums<Shape::kRows> (&sums)[Shape::kWarpgroupTiles]) {
  // Four matrices of eight rows, for each warpgroup.
  if constexpr (Shape::kRows < (Shape::kIsSlicedK ? 64 : 32)) {
#pragma unroll
    for (int t = 0; t < Shape::kWarpgroupTiles; ++t) {
      StoreEach<Shape, kGated>(
          work,
          FirstOutput<Shape>() + (first_tile + t) * GemmPolicy::kTileOutputs,
          sums[t]);
    }
  } else {
    const StagedResults<Shape, kGated> staged = {slots};
    SyncConsumers();
#pragma unroll
    for (int t = 0; t < Shape::kWarpgroupTiles; ++t) {
      staged.Add(first_tile + t, sums[t]);
    }
    SyncConsumers();
    staged.Store(work);
  }
}

template <typename Shape>
__device__ __forceinline__ void StoreFloats(const GemmWork& work,
                                            int first_output,
                                            const Sums<Shape::kRows>& sums) {
  const int64_t width = work.num_outputs;
  float* const out = static_cast<float*>(work.out) +
                     int64_t{blockIdx.y} * work.num_rows * width;
  const bool adds = work.epilogue == CudaEpilogue::kAddFloat;
  ForEachSum<Shape>(work, first_output, sums,
                    [&](int row, int output, float a, float b) {
                      float* const to = out + row * width + output;
                      to[0] = adds ? to[0] + a : a;
                      to[8] = adds ? to[8] + b : b;
                    });
}

}  // namespace fp8_gemm
}  // namespace espalier

#endif
