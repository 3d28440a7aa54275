// Hopper's instructions (compute capability 9.0, sm_90a) for products whose
// first operand is in registers, beside those of cuda_tile_instructions.cuh.
#pragma once

#include "kernels/matmul/cuda_tile_instructions.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

namespace espalier {

// ---- Multiplying ------------------------------------------------------------

// Until all but the newest `kPending` committed groups are done.
template <int kPending>
__device__ __forceinline__ void WgmmaWaitAllBut() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// wgmma of so many rows: the places of the sums, of the four registers of w, of
// x, and the sums.
#define ESPALIER_WGMMA_RS(ROWS, PLACES, W, X, ...)                           \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" ROWS                      \
               "k16.f32.bf16.bf16 {" PLACES "}, {" W "}, " X ", 1, 1, 1, 0;" \
               : __VA_ARGS__                                                 \
               : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "l"(x))
#define ESPALIER_EIGHT_SUMS(I)                                                \
  "+f"(d[I]), "+f"(d[I + 1]), "+f"(d[I + 2]), "+f"(d[I + 3]), "+f"(d[I + 4]), \
      "+f"(d[I + 5]), "+f"(d[I + 6]), "+f"(d[I + 7])
#define ESPALIER_SUMS_16 ESPALIER_EIGHT_SUMS(0), ESPALIER_EIGHT_SUMS(8)
#define ESPALIER_SUMS_32 \
  ESPALIER_SUMS_16, ESPALIER_EIGHT_SUMS(16), ESPALIER_EIGHT_SUMS(24)
#define ESPALIER_SUMS_64                                              \
  ESPALIER_SUMS_32, ESPALIER_EIGHT_SUMS(32), ESPALIER_EIGHT_SUMS(40), \
      ESPALIER_EIGHT_SUMS(48), ESPALIER_EIGHT_SUMS(56)
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

// sums += w [64, 16] * x [kRows, 16]^T, asynchronously. A thread has of w
//   [2 j + i]  output 16 warp + lane / 4 + 8 i,
//              inputs 8 j + 2 (lane % 4) and the next
// and its registers are in use until the group is done.
template <int kRows>
__device__ __forceinline__ void MultiplyRegisters(const uint32_t (&w)[4],
                                                  uint64_t x,
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
#undef ESPALIER_PLACES_64
#undef ESPALIER_PLACES_32
#undef ESPALIER_PLACES_16
#undef ESPALIER_PLACES_8
#undef ESPALIER_PLACES_4
#undef ESPALIER_SUMS_64
#undef ESPALIER_SUMS_32
#undef ESPALIER_SUMS_16
#undef ESPALIER_EIGHT_SUMS
#undef ESPALIER_WGMMA_RS

}  // namespace espalier

#endif
