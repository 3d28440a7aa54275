// Instructions that CUDA C++ has no words for, and what a warp does together.
// Device code of several kernel families uses them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace espalier {

// 2^x; tiny results are 0.
__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Of a warp's numbers, in all its lanes.
__device__ __forceinline__ float WarpMax(float x) {
  for (int step = 16; step > 0; step /= 2) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
  }
  return x;
}
__device__ __forceinline__ float WarpSum(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}
// Of each kLanes lanes side by side, in all of them.
template <int kLanes, typename T>
__device__ __forceinline__ T LaneGroupSum(T x) {
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) {
    x += __shfl_xor_sync(~0u, x, step);
  }
  return x;
}
template <int kLanes>
__device__ __forceinline__ float LaneGroupMax(float x) {
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
  }
  return x;
}

// ---- Asynchronous copies ----------------------------------------------------

__device__ __forceinline__ uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}
// The copies that this thread has begun since the last call are a stage.
__device__ __forceinline__ void CpAsyncCommitGroup() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until all stages but the newest kPending are there, of this thread's copies.
template <int kPending>
__device__ __forceinline__ void CpAsyncWaitGroup() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// ---- Tensor cores -----------------------------------------------------------

// Four matrices of 8 x 8 numbers of 16 bits: lane l gives the place of row
// l % 8 of matrix l / 8, and has numbers 2 (l % 4) and the next of row l / 4 of
// each.
__device__ __forceinline__ void LdMatrixX4(uint32_t (&matrices)[4],
                                           uint32_t from) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]),
        "=r"(matrices[3])
      : "r"(from)
      : "memory");
}

// sums [16, 8] += a [16, 16] * b [16, 8], spread over a warp as m16n8k16 wants;
// pairs of T, which is __nv_bfloat16 or __half.
template <typename T>
__device__ __forceinline__ void MmaM16N8K16(float (&sums)[4],
                                            const uint32_t (&a)[4], uint32_t b0,
                                            uint32_t b1) {
  if constexpr (std::is_same_v<T, __half>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    static_assert(std::is_same_v<T, __nv_bfloat16>);
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

}  // namespace espalier
