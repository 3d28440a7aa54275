// PTX wrappers for wgmma (compute capability 9.0, sm_90a): definitions that all
// its users share, and products whose first operand is in registers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda_ptx.cuh"

namespace espalier {

// Makes this thread's writes to shared memory visible to wgmma and TMA, after a
// barrier.
__device__ __forceinline__ void FenceProxyAsync() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Returns the descriptor of a tile of rows of 128 bytes, swizzled as by TMA.
// Eight rows are 1024 bytes, aligned to that. In a cluster the high bits of an
// address name the block, and are masked out.
__device__ __forceinline__ uint64_t WgmmaDescriptor(uint32_t tile) {
  return (tile & 0x3FFFF) >> 4 | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 |
         uint64_t{1} << 62;
}

__device__ __forceinline__ void WgmmaFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void WgmmaCommitGroup() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most kPending of these warps' committed groups are
// outstanding.
template <int kPending = 0>
__device__ __forceinline__ void WgmmaWaitGroup() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

#define ESPALIER_FOUR_SUMS(I) \
  "+f"(d[I][0]), "+f"(d[I][1]), "+f"(d[I][2]), "+f"(d[I][3])
#define ESPALIER_WGMMA_RS(TYPE)                                               \
  asm volatile(                                                               \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE             \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "   \
      "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28," \
      " %29, %30, %31}, {%32, %33, %34, %35}, %36, 1, 1, 1, %37;"             \
      : ESPALIER_FOUR_SUMS(kFirst), ESPALIER_FOUR_SUMS(kFirst + 1),           \
        ESPALIER_FOUR_SUMS(kFirst + 2), ESPALIER_FOUR_SUMS(kFirst + 3),       \
        ESPALIER_FOUR_SUMS(kFirst + 4), ESPALIER_FOUR_SUMS(kFirst + 5),       \
        ESPALIER_FOUR_SUMS(kFirst + 6), ESPALIER_FOUR_SUMS(kFirst + 7)        \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kTransposed))

// d += a [64, 16] * b [16, 64]. A warp has 16 rows of a and of d in the layout
// of MmaM16N8K16; d's columns begin at 8 * kFirst. `b` describes rows of d's
// columns or, transposed, rows of the 16.
template <typename T, bool kTransposed, int kFirst = 0, int kTiles>
__device__ __forceinline__ void WgmmaM64N64K16(const uint32_t (&a)[4],
                                               uint64_t b,
                                               float (&d)[kTiles][4]) {
  static_assert(kFirst + 8 <= kTiles);
  if constexpr (std::is_same_v<T, __half>) {
    ESPALIER_WGMMA_RS("f16");
  } else {
    static_assert(std::is_same_v<T, __nv_bfloat16>);
    ESPALIER_WGMMA_RS("bf16");
  }
}
#undef ESPALIER_WGMMA_RS
#undef ESPALIER_FOUR_SUMS

#endif

}  // namespace espalier
