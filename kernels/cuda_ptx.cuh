// Inline PTX wrappers and warp reductions, for device code of several kernel
// families.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace espalier {

// Returns 2^x; tiny results are 0.
__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Reduce over a warp; every lane gets the result.
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
// Reduce over each kLanes neighbouring lanes; each of them gets the result.
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
// Commits this thread's copies since the last call as a group.
__device__ __forceinline__ void CpAsyncCommitGroup() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most kPending of this thread's cp.async groups are
// outstanding.
template <int kPending>
__device__ __forceinline__ void CpAsyncWaitGroup() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// ---- Tensor cores -----------------------------------------------------------

// ldmatrix.x4: loads four matrices of 8 x 8 16-bit numbers. Lane l passes the
// address of row l % 8 of matrix l / 8, and gets numbers 2 (l % 4) and 2 (l %
// 4) + 1 of row l / 4 of each.
__device__ __forceinline__ void LdMatrixX4(uint32_t (&matrices)[4],
                                           uint32_t from) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]),
        "=r"(matrices[3])
      : "r"(from)
      : "memory");
}

// sums [16, 8] += a [16, 16] * b [16, 8], in the fragment layout of m16n8k16.
// Operands are pairs of T, which is __nv_bfloat16 or __half.
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
