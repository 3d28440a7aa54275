// Hopper's instructions for tiles of matrices (compute capability 9.0, sm_90a):
// barriers in shared memory, copies of tiles that complete on a barrier, and
// products of tiles by four warps together.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda_ptx.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

namespace espalier {

// ---- Barriers in shared memory ----------------------------------------------

__device__ __forceinline__ void InitBarrier(uint64_t* barrier, int count) {
  asm volatile(
      "mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(barrier)),
      "r"(count)
      : "memory");
}
// Once initialised: before any copy counts bytes on them.
__device__ __forceinline__ void FenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void Arrive(uint64_t* barrier) {
  asm volatile(
      "mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SharedAddress(barrier))
      : "memory");
}
// Arrives, and the phase waits for so many bytes of copies too.
__device__ __forceinline__ void ArriveAndExpectTx(uint64_t* barrier,
                                                  int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                   SharedAddress(barrier)),
               "r"(bytes)
               : "memory");
}
// Until the phase of that parity has ended.
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

// A tile of a matrix, as its map says, from (column, row) on.
__device__ __forceinline__ void TmaLoad2d(const CUtensorMap& from, int column,
                                          int row, char* to,
                                          uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::"
      "bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(SharedAddress(to)),
      "l"(&from), "r"(SharedAddress(barrier)), "r"(column), "r"(row)
      : "memory");
}

// ---- Multiplying -----------------------------------------------------------

// How wgmma finds a tile of rows of 128 bytes, swizzled as the copy engine
// does: eight rows are 1024 bytes.
__device__ __forceinline__ uint64_t TileDescriptor(const char* tile) {
  const uint64_t address = SharedAddress(tile);
  return (address >> 4) | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 |
         uint64_t{1} << 62;
}

__device__ __forceinline__ void WgmmaFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void WgmmaCommitGroup() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until all that this group of warps has committed is done.
__device__ __forceinline__ void WgmmaWaitGroup() {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

constexpr int kMultiplyInputs = 16;  // of an instruction

// Of 64 outputs and 128 rows, four warps'; a thread's share:
//   [4 j + 2 i + k]  output 16 warp + lane / 4 + 8 i,
//                    row 8 j + 2 (lane % 4) + k
struct Sums {
  float values[64];
};

#define ESPALIER_WGMMA(TYPE)                                                   \
  asm volatile(                                                                \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE             \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "    \
      "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, " \
      "%29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, " \
      "%43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, " \
      "%57, %58, %59, %60, %61, %62, %63}, %64, %65, 1, 1, 1, 0, 0;"           \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]),            \
        "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]),            \
        "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),       \
        "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]),       \
        "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),       \
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),       \
        "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]),       \
        "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),       \
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]),       \
        "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]),       \
        "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]),       \
        "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]),       \
        "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])                     \
      : "l"(w), "l"(x))

// sums += w [64, 16] * x [128, 16]^T.
template <typename T>
__device__ __forceinline__ void Multiply(uint64_t w, uint64_t x, Sums& sums) {
  float(&d)[64] = sums.values;
  if constexpr (std::is_same_v<T, __half>) {
    ESPALIER_WGMMA("f16");
  } else {
    static_assert(std::is_same_v<T, __nv_bfloat16>);
    ESPALIER_WGMMA("bf16");
  }
}
#undef ESPALIER_WGMMA

// Four matrices of 8 outputs x 8 rows, transposed: lane l gives the place of
// row l % 8 of matrix l / 8, 16 bytes.
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
