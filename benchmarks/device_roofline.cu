#include <algorithm>
#include <vector>

#include "base/cuda_launch.cuh"
#include "benchmarks/device_roofline.h"
#include "kernels/matmul/cuda_matmul.h"

namespace espalier {
namespace {

constexpr int64_t kBytes = int64_t{4} << 30;
constexpr int kNumTimed = 20;
constexpr int kProductSize = 8192;  // rows and columns of all three matrices

// 64 KiB a block, without a loop over blocks, reads fastest: 4.6-4.7 TB/s on
// an H200, against 4.5 of persistent blocks.
struct ReadPolicy {
  static constexpr int kThreads = 512;
  static constexpr int kLoads = 8;  // 16 bytes each, all in flight at once
  static constexpr int kBlockBytes = kThreads * kLoads * sizeof(uint4);
};
constexpr int kNumBlocks = kBytes / ReadPolicy::kBlockBytes;

// Two bf16 numbers of random signs and digits, in [1, 2) but for the sign.
__device__ uint32_t AsNumbers(uint32_t bits) {
  return (bits & 0x807F807Fu) | 0x3F803F80u;
}

__global__ void __launch_bounds__(ReadPolicy::kThreads)
    FillRandomly(uint4* data) {
  GridDependencyWait();
  const uint32_t first = blockIdx.x * ReadPolicy::kThreads * ReadPolicy::kLoads;
  for (int i = 0; i < ReadPolicy::kLoads; ++i) {
    const uint32_t at = first + i * ReadPolicy::kThreads + threadIdx.x;
    uint32_t x = at * 0x9E3779B1u;
    x = (x ^ (x >> 15)) * 0x85EBCA77u;
    data[at] = {AsNumbers(x), AsNumbers(x * 3 + 1), AsNumbers(x ^ 0xC2B2AE3Du),
                AsNumbers(x * 5 + 7)};
  }
}

// Adds everything up, so that no load can be left out; `sum` is written only
// where a block's sum is one that random bytes hardly have.
__global__ void __launch_bounds__(ReadPolicy::kThreads)
    ReadOnce(const uint4* data, uint32_t* sum) {
  GridDependencyWait();
  const uint32_t first = blockIdx.x * ReadPolicy::kThreads * ReadPolicy::kLoads;
  uint4 loaded[ReadPolicy::kLoads];
#pragma unroll
  for (int i = 0; i < ReadPolicy::kLoads; ++i) {
    loaded[i] = __ldcs(&data[first + i * ReadPolicy::kThreads + threadIdx.x]);
  }
  uint32_t mine = 0;
#pragma unroll
  for (int i = 0; i < ReadPolicy::kLoads; ++i) {
    mine += loaded[i].x + loaded[i].y + loaded[i].z + loaded[i].w;
  }
  if (mine == 0xDEADBEEFu) *sum = mine;
}

// The median of the seconds that what `enqueue` enqueues takes.
template <typename Enqueue>
absl::StatusOr<double> MedianSeconds(const Enqueue& enqueue,
                                     cudaStream_t stream) {
  ASSIGN_OR_RETURN(const CudaEvent begin, CudaEvent::Create());
  ASSIGN_OR_RETURN(const CudaEvent end, CudaEvent::Create());
  std::vector<float> times(kNumTimed);
  for (float& milliseconds : times) {
    RETURN_IF_CUDA_ERROR(cudaEventRecord(begin.get(), stream));
    RETURN_IF_ERROR(enqueue());
    RETURN_IF_CUDA_ERROR(cudaEventRecord(end.get(), stream));
    RETURN_IF_CUDA_ERROR(cudaEventSynchronize(end.get()));
    RETURN_IF_CUDA_ERROR(
        cudaEventElapsedTime(&milliseconds, begin.get(), end.get()));
  }
  std::nth_element(times.begin(), times.begin() + kNumTimed / 2, times.end());
  return times[kNumTimed / 2] * 1e-3;
}

const LaunchConfig kAllBlocks = {.grid = dim3(kNumBlocks),
                                 .block = dim3(ReadPolicy::kThreads)};

// Three matrices at the front of `data`: an input, weights and the output.
absl::StatusOr<double> ProductSeconds(uint4* data, const CudaDevice& device,
                                      cudaStream_t stream) {
  constexpr size_t kMatrix =
      size_t{kProductSize} * kProductSize * 2 / sizeof(uint4);
  ASSIGN_OR_RETURN(const auto products,
                   CudaMatMul::Create(device, {.max_rows = kProductSize,
                                               .max_outputs = kProductSize}));
  const CudaMatrix weights = {.data = data + kMatrix,
                              .dtype = DType::kBFloat16,
                              .num_rows = kProductSize,
                              .num_cols = kProductSize};
  return MedianSeconds(
      [&] {
        return products->Run(data, kProductSize, weights, CudaEpilogue::kStore,
                             data + 2 * kMatrix, stream);
      },
      stream);
}

}  // namespace

absl::StatusOr<DeviceRoofline> MeasureRates(const CudaDevice& device) {
  RETURN_IF_CUDA_ERROR(cudaSetDevice(device.ordinal));
  ASSIGN_OR_RETURN(const CudaStream stream, CudaStream::Create());
  ASSIGN_OR_RETURN(const auto data,
                   DeviceBuffer<uint4>::Create(kBytes / sizeof(uint4)));
  ASSIGN_OR_RETURN(const auto sum, DeviceBuffer<uint32_t>::Create(1));
  RETURN_IF_ERROR(Launch(FillRandomly, kAllBlocks, stream.get(), data.data()));
  const auto read = [&] {
    return Launch(ReadOnce, kAllBlocks, stream.get(), data.data(), sum.data());
  };
  ASSIGN_OR_RETURN(const double seconds, MedianSeconds(read, stream.get()));
  ASSIGN_OR_RETURN(const double product_seconds,
                   ProductSeconds(data.data(), device, stream.get()));
  const double n = kProductSize;
  return DeviceRoofline{.bytes_per_s = kBytes / seconds,
                        .flops_per_s = 2 * n * n * n / product_seconds};
}

}  // namespace espalier
