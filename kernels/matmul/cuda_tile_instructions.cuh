// PTX wrappers for Hopper's tile instructions (compute capability 9.0, sm_90a):
// mbarrier, TMA loads that complete on an mbarrier, and wgmma with w in shared
// memory or in registers.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda_kernel_support.cuh"
#include "kernels/cuda_ptx.cuh"
#include "kernels/cuda_wgmma.cuh"

namespace espalier {

// True if `kernel`, which must have static shared memory, can run on `device`
// and was compiled with these instructions. wgmma is part of sm_90a alone: code
// for it runs on compute capability 9.0 and on no later one.
template <typename... Params>
bool HasTileInstructions(void (*kernel)(Params...), const CudaDevice& device) {
  return device.compute_capability == 90 && HasKernelImage(kernel);
}

}  // namespace espalier

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

namespace espalier {

// ---- Barriers in shared memory ----------------------------------------------

__device__ __forceinline__ void InitBarrier(uint64_t* barrier, int count) {
  asm volatile(
      "mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(barrier)),
      "r"(count)
      : "memory");
}
// Makes initialised barriers visible to TMA. Call before a copy uses them.
__device__ __forceinline__ void FenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  FenceProxyAsync();
}
__device__ __forceinline__ void Arrive(uint64_t* barrier) {
  asm volatile(
      "mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SharedAddress(barrier))
      : "memory");
}
// Arrives, and makes the phase wait for `bytes` bytes of copies too.
__device__ __forceinline__ void ArriveAndExpectTx(uint64_t* barrier,
                                                  int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                   SharedAddress(barrier)),
               "r"(bytes)
               : "memory");
}
// Waits until the phase of that parity has ended.
__device__ __forceinline__ void WaitParity(uint64_t* barrier, uint32_t phase) {
  uint32_t done = 0;
  while (!done) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(done)
        : "r"(SharedAddress(barrier)), "r"(phase)
        : "memory");
  }
}

// ---- Copies of tiles -------------------------------------------------------

// Copies the tile at (column, row) of a tensor map's matrix.
__device__ __forceinline__ void TmaLoad2d(const CUtensorMap& from, int column,
                                          int row, char* to,
                                          uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::"
      "bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(SharedAddress(to)),
      "l"(&from), "r"(SharedAddress(barrier)), "r"(column), "r"(row)
      : "memory");
}

// ---- Registers -------------------------------------------------------------

// Each of 384 threads begins with 168 registers. The loading warpgroup releases
// most of its own to the two that multiply. All four warps of a warpgroup must
// call it.
template <int kThreads>
__device__ __forceinline__ void WarpgroupRegDealloc() {
  static_assert(kThreads == 384);
  asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
}
template <int kThreads>
__device__ __forceinline__ void WarpgroupRegAlloc() {
  static_assert(kThreads == 384);
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
}

// ---- Multiplying -----------------------------------------------------------

__device__ __forceinline__ uint64_t TileDescriptor(const char* tile) {
  return WgmmaDescriptor(SharedAddress(tile));
}

constexpr int kWgmmaK = 16;  // inputs of an instruction

// A thread's sums of a tile of 64 outputs and kRows rows, held by four warps:
//   [4 j + 2 i + k]  output 16 warp + lane / 4 + 8 i,
//                    row 8 j + 2 (lane % 4) + k
template <int kRows>
struct Sums {
  float values[kRows / 2];
};

// Operands of wgmma: the sums, and their operand numbers.
#define ESPALIER_EIGHT_SUMS(I)                                                \
  "+f"(d[I]), "+f"(d[I + 1]), "+f"(d[I + 2]), "+f"(d[I + 3]), "+f"(d[I + 4]), \
      "+f"(d[I + 5]), "+f"(d[I + 6]), "+f"(d[I + 7])
#define ESPALIER_SUMS_16 ESPALIER_EIGHT_SUMS(0), ESPALIER_EIGHT_SUMS(8)
#define ESPALIER_SUMS_32 \
  ESPALIER_SUMS_16, ESPALIER_EIGHT_SUMS(16), ESPALIER_EIGHT_SUMS(24)
#define ESPALIER_SUMS_64                                              \
  ESPALIER_SUMS_32, ESPALIER_EIGHT_SUMS(32), ESPALIER_EIGHT_SUMS(40), \
      ESPALIER_EIGHT_SUMS(48), ESPALIER_EIGHT_SUMS(56)
#define ESPALIER_SUMS_80 \
  ESPALIER_SUMS_64, ESPALIER_EIGHT_SUMS(64), ESPALIER_EIGHT_SUMS(72)
#define ESPALIER_PLACES_4 "%0, %1, %2, %3"
#define ESPALIER_PLACES_8 ESPALIER_PLACES_4 ", %4, %5, %6, %7"
#define ESPALIER_PLACES_16 \
  ESPALIER_PLACES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define ESPALIER_PLACES_32                                              \
  ESPALIER_PLACES_16                                                    \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, " \
  "%29, %30, %31"
#define ESPALIER_PLACES_64                                                 \
  ESPALIER_PLACES_32                                                       \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, "    \
  "%45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, " \
  "%59, %60, %61, %62, %63"
#define ESPALIER_PLACES_80                                              \
  ESPALIER_PLACES_64                                                    \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, " \
  "%77, %78, %79"
// wgmma with ROWS rows: the operand numbers of the sums, of w and of x, and the
// sums.
#define ESPALIER_WGMMA(ROWS, TYPE, PLACES, W, X, ...)                   \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" ROWS "k16.f32." TYPE \
               "." TYPE " {" PLACES "}, %" W ", %" X ", 1, 1, 1, 0, 0;" \
               : __VA_ARGS__                                            \
               : "l"(w), "l"(x))
#define ESPALIER_WGMMA_ALL(TYPE)                                \
  if constexpr (kRows == 32) {                                  \
    ESPALIER_WGMMA("32", TYPE, ESPALIER_PLACES_16, "16", "17",  \
                   ESPALIER_SUMS_16);                           \
  } else if constexpr (kRows == 64) {                           \
    ESPALIER_WGMMA("64", TYPE, ESPALIER_PLACES_32, "32", "33",  \
                   ESPALIER_SUMS_32);                           \
  } else if constexpr (kRows == 128) {                          \
    ESPALIER_WGMMA("128", TYPE, ESPALIER_PLACES_64, "64", "65", \
                   ESPALIER_SUMS_64);                           \
  } else {                                                      \
    ESPALIER_WGMMA("160", TYPE, ESPALIER_PLACES_80, "80", "81", \
                   ESPALIER_SUMS_80);                           \
  }

// sums += w [64, 16] * x [kRows, 16]^T, asynchronously; both in shared memory.
template <typename T, int kRows>
__device__ __forceinline__ void WgmmaSS(uint64_t w, uint64_t x,
                                        Sums<kRows>& sums) {
  static_assert(kRows == 32 || kRows == 64 || kRows == 128 || kRows == 160);
  float(&d)[kRows / 2] = sums.values;
  if constexpr (std::is_same_v<T, __half>) {
    ESPALIER_WGMMA_ALL("f16");
  } else {
    static_assert(std::is_same_v<T, __nv_bfloat16>);
    ESPALIER_WGMMA_ALL("bf16");
  }
}
#undef ESPALIER_WGMMA_ALL
#undef ESPALIER_WGMMA

// wgmma with ROWS rows: the operand numbers of the sums, of the four registers
// of w, and of x, and the sums.
#define ESPALIER_WGMMA_RS(ROWS, PLACES, W, X, ...)                           \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" ROWS                      \
               "k16.f32.bf16.bf16 {" PLACES "}, {" W "}, " X ", 1, 1, 1, 0;" \
               : __VA_ARGS__                                                 \
               : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "l"(x))
// WgmmaSS of bfloat16 with w in registers. A thread's registers of w are
//   [2 j + i]  output 16 warp + lane / 4 + 8 i,
//              inputs 8 j + 2 (lane % 4) and the next
// and are in use until the group is complete.
template <int kRows>
__device__ __forceinline__ void WgmmaRS(const uint32_t (&w)[4], uint64_t x,
                                        Sums<kRows>& sums) {
  static_assert(kRows == 8 || kRows == 16 || kRows == 32 || kRows == 64 ||
                kRows == 128);
  float(&d)[kRows / 2] = sums.values;
  if constexpr (kRows == 8) {
    ESPALIER_WGMMA_RS("8", ESPALIER_PLACES_4, "%4, %5, %6, %7", "%8",
                      "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]));
  } else if constexpr (kRows == 16) {
    ESPALIER_WGMMA_RS("16", ESPALIER_PLACES_8, "%8, %9, %10, %11", "%12",
                      ESPALIER_EIGHT_SUMS(0));
  } else if constexpr (kRows == 32) {
    ESPALIER_WGMMA_RS("32", ESPALIER_PLACES_16, "%16, %17, %18, %19", "%20",
                      ESPALIER_SUMS_16);
  } else if constexpr (kRows == 64) {
    ESPALIER_WGMMA_RS("64", ESPALIER_PLACES_32, "%32, %33, %34, %35", "%36",
                      ESPALIER_SUMS_32);
  } else {
    ESPALIER_WGMMA_RS("128", ESPALIER_PLACES_64, "%64, %65, %66, %67", "%68",
                      ESPALIER_SUMS_64);
  }
}
#undef ESPALIER_WGMMA_RS
#undef ESPALIER_PLACES_80
#undef ESPALIER_PLACES_64
#undef ESPALIER_PLACES_32
#undef ESPALIER_PLACES_16
#undef ESPALIER_PLACES_8
#undef ESPALIER_PLACES_4
#undef ESPALIER_SUMS_80
#undef ESPALIER_SUMS_64
#undef ESPALIER_SUMS_32
#undef ESPALIER_SUMS_16
#undef ESPALIER_EIGHT_SUMS

// Stores four matrices of 8 outputs x 8 rows, transposed: lane l passes the
// address of row l % 8 of matrix l / 8, 16 bytes.
__device__ __forceinline__ void StMatrixX4Trans(const uint32_t (&pairs)[4],
                                                char* to) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, "
      "%4};" ::"r"(SharedAddress(to)),
      "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
      : "memory");
}

}  // namespace espalier

#endif
