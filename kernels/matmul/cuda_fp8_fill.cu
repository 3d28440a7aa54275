#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cstdint>

#include "base/cuda_launch.cuh"
#include "kernels/matmul/cuda_fp8_fill.h"
#include "kernels/matmul/fp8.h"
#include "kernels/matmul/fp8_order.h"

namespace espalier {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxBlocks = 4096;
// The largest number, in standard deviations.
constexpr float kLargest = 5;

__device__ uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

__device__ float Normal(uint64_t bits) {
  const float u = (static_cast<uint32_t>(bits >> 40) + 1) * 0x1p-24f;
  const float v = static_cast<uint32_t>(bits & 0xFFFFFF) * 0x1p-24f;
  return sqrtf(-2 * logf(u)) * cospif(2 * v);
}

__global__ void __launch_bounds__(kThreads)
    FillFp8Normal(uint8_t* codes, __nv_bfloat16* scales, int num_rows,
                  int num_cols, int stride, float deviation, uint64_t seed) {
  GridDependencyWait();
  for (int row = blockIdx.x; row < num_rows; row += gridDim.x) {
    const int64_t block = int64_t{row / kFp8BlockOutputs} * kFp8BlockOutputs;
    if (threadIdx.x == 0) {
      scales[row] = __nv_bfloat16(deviation * kLargest / kMaxFp8);
    }
    for (int col = threadIdx.x; col < num_cols; col += kThreads) {
      const uint64_t index = (uint64_t(row) << 32) | uint32_t(col);
      const uint64_t bits = Mix(Mix(seed + 0x9E3779B97F4A7C15ull) + index);
      codes[block * stride + Fp8Offset(row % kFp8BlockOutputs, col)] =
          __nv_cvt_float_to_fp8(Normal(Mix(bits)) * kMaxFp8 / kLargest,
                                __NV_SATFINITE, __NV_E4M3);
    }
  }
}

}  // namespace

absl::Status CudaFillFp8Normal(const CudaMatrix& w, int num_rows, int num_cols,
                               float standard_deviation, uint64_t seed,
                               cudaStream_t stream) {
  if (num_rows == 0) return absl::OkStatus();
  const LaunchConfig shape = {.grid = dim3(std::min(num_rows, kMaxBlocks)),
                              .block = kThreads};
  return Launch(
      FillFp8Normal, shape, stream,
      static_cast<uint8_t*>(const_cast<void*>(w.data)),
      reinterpret_cast<__nv_bfloat16*>(const_cast<uint16_t*>(w.fp8_scales)),
      num_rows, num_cols, w.num_cols, standard_deviation, seed);
}

}  // namespace espalier
