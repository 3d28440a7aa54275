#include <algorithm>
#include <cstdint>

#include "base/cuda_launch.cuh"
#include "kernels/matmul/cuda_fp8_convert.cuh"
#include "kernels/matmul/cuda_fp8_dequantize.h"
#include "kernels/matmul/fp8_order.h"

namespace espalier {
namespace {

// A warp widens a run of a block: eight outputs, 64 inputs. Two blocks a
// multiprocessor keep enough reads in flight.
constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kMaxBlocks = 2048;

// Rows of shared memory are as long as all banks, so that places are
// XOR-swizzled by row to avoid bank conflicts.
__device__ __forceinline__ int Place(int output, int eight) {
  return output * 8 + (eight ^ output);
}

__global__ void __launch_bounds__(kThreads)
    DequantizeFp8(const uint4* w, const __nv_bfloat16* scales, int num_outputs,
                  int num_runs, uint4* out) {
  __shared__ uint4 staged[kWarps][64];
  LaunchDependents();
  GridDependencyWait();
  const int lane = threadIdx.x % 32;
  uint4* const mine = staged[threadIdx.x / 32];
  const int64_t num_pieces = int64_t{num_outputs + 7} / 8 * num_runs;
  for (int64_t piece = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
       piece < num_pieces; piece += int64_t{gridDim.x} * kWarps) {
    const int first = static_cast<int>(piece / num_runs) * kFp8BlockOutputs;
    const int run = static_cast<int>(piece % num_runs);
    const int output = lane / 4;
    const auto factor = Fp8Factor(scales[min(first + output, num_outputs - 1)]);
    const uint4 codes = w[piece * 32 + lane];
    const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const auto pair = [&](int eight) {
        return reinterpret_cast<uint32_t*>(&mine[Place(output, eight)]) +
               lane % 4;
      };
      *pair(2 * k) = EvenFp8Pair(words[k], factor);
      *pair(2 * k + 1) = OddFp8Pair(words[k], factor);
    }
    __syncwarp();
#pragma unroll
    for (int i = lane; i < 64; i += 32) {
      if (first + i / 8 >= num_outputs) break;
      out[int64_t{first + i / 8} * num_runs * 8 + run * 8 + i % 8] =
          mine[Place(i / 8, i % 8)];
    }
    __syncwarp();
  }
}

}  // namespace

absl::Status CudaDequantizeFp8(const CudaMatrix& w, void* out,
                               cudaStream_t stream) {
  const int num_runs = w.num_cols / kFp8RunInputs;
  const int64_t num_pieces =
      int64_t{w.num_rows + kFp8BlockOutputs - 1} / kFp8BlockOutputs * num_runs;
  if (num_pieces == 0) return absl::OkStatus();
  const auto grid = static_cast<unsigned>(
      std::min<int64_t>((num_pieces + kWarps - 1) / kWarps, kMaxBlocks));
  return Launch(DequantizeFp8, {.grid = grid, .block = kThreads}, stream,
                static_cast<const uint4*>(w.data),
                reinterpret_cast<const __nv_bfloat16*>(w.fp8_scales),
                w.num_rows, num_runs, static_cast<uint4*>(out));
}

}  // namespace espalier
