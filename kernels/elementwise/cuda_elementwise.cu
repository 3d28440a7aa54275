// A decode step runs these kernels on a few rows between two products, so their
// cost is a launch and two or three round trips to L2. On an H200, in a graph
// of each kernel: a norm of 5 rows of 2048 takes 1.04 us (128 rows of 4096: 2.2
// us).
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cub/block/block_reduce.cuh>
#include <type_traits>

#include "base/ceil_div.h"
#include "base/cuda_launch.cuh"
#include "base/status.h"
#include "kernels/cuda_element_type.cuh"
#include "kernels/cuda_vectors.cuh"
#include "kernels/elementwise/cuda_elementwise.h"

namespace espalier {
namespace {

// Numbers are read and written four at a time: 16 bytes of f32, 8 of the
// 16-bit types. Four divide every width.
constexpr int kVector = 4;

__device__ float SumOfSquares(float4 x) {
  return (x.x * x.x + x.y * x.y) + (x.z * x.z + x.w * x.w);
}
__device__ float4 Scale(float4 x, float factor, float4 weight) {
  return {x.x * factor * weight.x, x.y * factor * weight.y,
          x.z * factor * weight.z, x.w * factor * weight.w};
}

// --- norms ---

// One block per row. 256 threads if the row is read as it is: enough loads in
// flight for a row of 768 to 4096 numbers, one to four vectors a thread, while
// eight blocks share a multiprocessor when there are many rows. 512 threads if
// addends are loaded too (128 rows of 4096 with two: 0.5 us less). The number
// of rows changes neither. But it decides whether a row has addends
// (CudaMatMul::RunSplitK), and with that the order of its sum.
template <int kThreadsPerRow>
struct NormPolicy {
  static constexpr int kThreads = kThreadsPerRow;
  static constexpr int kBlockWidth = kThreads * kVector;
  static constexpr int kMaxVectors = kMaxCudaNormWidth / kBlockWidth;
};

// The source of row `row` for NormRow, which stores it once all its loads have
// begun.
struct ResidualRow {
  using Policy = NormPolicy<256>;
  static constexpr auto kDependency = GridDependency::kWaitsFirst;
  const float* x;
  __device__ float4 Load(int row, int width, int i) const {
    return LoadFour(x + int64_t{row} * width + i);
  }
  __device__ void Keep(int row, int width, int i, float4 value) const {}
};

// Adds the split-K partials of a product.
template <int kCount>
struct SplitKReducedRow {
  using Policy = NormPolicy<512>;
  static constexpr auto kDependency = GridDependency::kWaitsFirst;
  float* x;
  const float* addends;
  int64_t stride;  // from one addend to the next
  __device__ float4 Load(int row, int width, int i) const {
    const int64_t at = int64_t{row} * width + i;
    float4 sum = LoadFour(x + at);
#pragma unroll
    for (int a = 0; a < kCount; ++a) {
      const float4 more = LoadFour(addends + a * stride + at);
      sum = {sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w};
    }
    return sum;
  }
  __device__ void Keep(int row, int width, int i, float4 value) const {
    StoreFour(value, x + int64_t{row} * width + i);
  }
};

// The row of the embedding table, which is also copied to the residual stream.
template <typename T>
struct EmbeddedRow {
  using Policy = NormPolicy<256>;
  // The forward pass begins here (CudaEmbed).
  static constexpr auto kDependency = GridDependency::kBarrier;
  const int* tokens;
  const T* embedding;
  float* x;
  __device__ float4 Load(int row, int width, int i) const {
    return LoadFour(embedding + int64_t{tokens[row]} * width + i);
  }
  __device__ void Keep(int row, int width, int i, float4 value) const {
    StoreFour(value, x + int64_t{row} * width + i);
  }
};

// The weights are constant, so they are loaded before the previous kernel ends.
template <int kVectors, typename Row, typename T>
__global__ void __launch_bounds__(Row::Policy::kThreads)
    NormRow(Row source, CudaNorm norm, T* out) {
  using BlockReduce = cub::BlockReduce<float, Row::Policy::kThreads>;
  __shared__ typename BlockReduce::TempStorage storage;
  __shared__ float shared_factor;
  constexpr bool kIsBarrier = Row::kDependency == GridDependency::kBarrier;
  if constexpr (!kIsBarrier) LaunchDependents();
  const int first = threadIdx.x * kVector;
  float4 weight[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int i = first + v * Row::Policy::kBlockWidth;
    if (i < norm.width) weight[v] = LoadFour(norm.weight + i);
  }
  GridDependencyWait();
  if constexpr (kIsBarrier) LaunchDependents();
  float4 x[kVectors];
  float sum = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int i = first + v * Row::Policy::kBlockWidth;
    // Has no branch, so that the loads of all vectors are in flight at once:
    // past the end the last vector is read again.
    x[v] = source.Load(blockIdx.x, norm.width, min(i, norm.width - kVector));
  }
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int i = first + v * Row::Policy::kBlockWidth;
    if (i < norm.width) sum += SumOfSquares(x[v]);
  }
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int i = first + v * Row::Policy::kBlockWidth;
    if (i < norm.width) source.Keep(blockIdx.x, norm.width, i, x[v]);
  }
  sum = BlockReduce(storage).Sum(sum);
  if (threadIdx.x == 0) {
    const float mean = sum / static_cast<float>(norm.size);
    shared_factor = 1.0f / sqrtf(mean + norm.epsilon);
  }
  __syncthreads();
  const float factor = shared_factor;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int i = first + v * Row::Policy::kBlockWidth;
    if (i < norm.width) {
      StoreFour(Scale(x[v], factor, weight[v]),
                out + int64_t{blockIdx.x} * norm.width + i);
    }
  }
}

template <int kVectors = 1, typename Row, typename T>
absl::Status LaunchNorm(const Row& source, int num_rows, const CudaNorm& norm,
                        T* out, cudaStream_t stream) {
  if (kVectors * Row::Policy::kBlockWidth < norm.width) {
    if constexpr (kVectors < Row::Policy::kMaxVectors) {
      return LaunchNorm<2 * kVectors>(source, num_rows, norm, out, stream);
    } else {
      return InvalidArgument("a norm of ", norm.width, " is wider than ",
                             kMaxCudaNormWidth);
    }
  }
  const LaunchConfig shape = {.grid = dim3(num_rows),
                              .block = Row::Policy::kThreads,
                              .dependency = Row::kDependency};
  return Launch(NormRow<kVectors, Row, T>, shape, stream, source, norm, out);
}

absl::Status CheckNorm(const CudaNorm& norm) {
  if (norm.bias != nullptr) {
    return InvalidArgument("a LayerNorm, where only an RMSNorm is taken");
  }
  if (norm.width > 0 && norm.width % 8 == 0) return absl::OkStatus();
  return InvalidArgument("a width of ", norm.width, " is not a multiple of 8");
}

// --- gather ---

// One 16-byte unit a thread: with few rows every load is in flight at once.
struct GatherPolicy {
  static constexpr int kThreads = 256;
};

__global__ void __launch_bounds__(GatherPolicy::kThreads)
    GatherRows(const int* rows, CudaGather a, CudaGather b) {
  LaunchDependents();
  GridDependencyWait();
  const int64_t from_row = rows[blockIdx.x];
  const int64_t to_row = blockIdx.x;
  int unit = blockIdx.y * GatherPolicy::kThreads + threadIdx.x;
  const int a_units = a.row_bytes / 16;
  const int b_units = b.row_bytes / 16;
  if (unit < a_units) {
    static_cast<uint4*>(a.to)[to_row * a_units + unit] =
        static_cast<const uint4*>(a.from)[from_row * a_units + unit];
    return;
  }
  unit -= a_units;
  if (unit < b_units) {
    static_cast<uint4*>(b.to)[to_row * b_units + unit] =
        static_cast<const uint4*>(b.from)[from_row * b_units + unit];
  }
}

// --- soft caps ---

// A vector a thread: with few rows every load is in flight at once.
struct SoftCapPolicy {
  static constexpr int kThreads = 256;
  static constexpr int kBlockSize = kThreads * kVector;
};

// Reads and writes all logits once: 8 bytes each, of which few rows are in L2.
__global__ void __launch_bounds__(SoftCapPolicy::kThreads)
    SoftCap(float cap, int64_t size, float* x) {
  LaunchDependents();
  GridDependencyWait();
  const int64_t i = int64_t{blockIdx.x} * SoftCapPolicy::kBlockSize +
                    int64_t{threadIdx.x} * kVector;
  const auto capped = [cap](float value) { return cap * tanhf(value / cap); };
  if (i + kVector <= size) {
    const float4 v = LoadFour(x + i);
    StoreFour({capped(v.x), capped(v.y), capped(v.z), capped(v.w)}, x + i);
    return;
  }
  for (int64_t j = i; j < size; ++j) x[j] = capped(x[j]);
}

// --- biases of rows ---

struct AddToRowsPolicy {
  static constexpr int kThreads = 256;
};

// Rows may begin at any number, so each thread processes one number.
__global__ void __launch_bounds__(AddToRowsPolicy::kThreads)
    AddToRows(const float* bias, int size, float* x) {
  LaunchDependents();
  const int i = blockIdx.x * AddToRowsPolicy::kThreads + threadIdx.x;
  const float addend = i < size ? bias[i] : 0;
  GridDependencyWait();
  if (i < size) x[int64_t{blockIdx.y} * size + i] += addend;
}

// --- random weights ---

// Runs once, at load; a grid that fills any device, looping over rows.
struct FillPolicy {
  static constexpr int kThreads = 256;
  static constexpr int kMaxBlocks = 4096;
};

// The finaliser of SplitMix64.
// Source: Steele, Lea, Flood 2014, "Fast splittable pseudorandom number
// generators".
__device__ uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// Box and Muller's first number of a pair.
__device__ float Normal(uint64_t bits) {
  const float u = (static_cast<uint32_t>(bits >> 40) + 1) * 0x1p-24f;
  const float v = static_cast<uint32_t>(bits & 0xFFFFFF) * 0x1p-24f;
  return sqrtf(-2 * logf(u)) * cospif(2 * v);
}

template <typename T>
__global__ void __launch_bounds__(FillPolicy::kThreads)
    FillNormal(T* data, int num_rows, int num_cols, int stride, float deviation,
               uint64_t seed) {
  GridDependencyWait();
  for (int row = blockIdx.x; row < num_rows; row += gridDim.x) {
    for (int col = threadIdx.x; col < num_cols; col += blockDim.x) {
      const uint64_t index = (uint64_t(row) << 32) | uint32_t(col);
      const uint64_t bits = Mix(Mix(seed + 0x9E3779B97F4A7C15ull) + index);
      data[int64_t{row} * stride + col] = T(deviation * Normal(Mix(bits)));
    }
  }
}

}  // namespace

absl::Status CudaRmsNorm(const float* x, int num_rows, const CudaNorm& norm,
                         DType dtype, void* out, cudaStream_t stream) {
  RETURN_IF_ERROR(CheckNorm(norm));
  if (num_rows == 0) return absl::OkStatus();
  return WithType(dtype, [&]<typename T>(T) {
    return LaunchNorm(ResidualRow{x}, num_rows, norm, static_cast<T*>(out),
                      stream);
  });
}

absl::Status CudaAddRmsNorm(float* x, const SplitKPartials& addends,
                            int num_rows, const CudaNorm& norm, DType dtype,
                            void* out, cudaStream_t stream) {
  if (addends.count == 0) {
    return CudaRmsNorm(x, num_rows, norm, dtype, out, stream);
  }
  RETURN_IF_ERROR(CheckNorm(norm));
  if (num_rows == 0) return absl::OkStatus();
  return WithType(dtype, [&]<typename T>(T) {
    const auto launch = [&]<int kCount>(std::integral_constant<int, kCount>) {
      const SplitKReducedRow<kCount> row = {x, addends.data,
                                            int64_t{num_rows} * norm.width};
      return LaunchNorm(row, num_rows, norm, static_cast<T*>(out), stream);
    };
    switch (addends.count) {
      case 2:
        return launch(std::integral_constant<int, 2>());
      case 4:
        return launch(std::integral_constant<int, 4>());
    }
    return InvalidArgument(addends.count, " addends, not 2 or 4");
  });
}

absl::Status CudaEmbed(const int* tokens, int num_tokens,
                       const CudaMatrix& embedding, const CudaNorm& norm,
                       float* x, void* normed, cudaStream_t stream) {
  RETURN_IF_ERROR(CheckNorm(norm));
  if (embedding.num_cols != norm.width) {
    return InvalidArgument("an embedding of ", embedding.num_cols,
                           " columns before a norm of ", norm.width);
  }
  if (num_tokens == 0) return absl::OkStatus();
  return WithType(embedding.dtype, [&]<typename T>(T) {
    const EmbeddedRow<T> row = {tokens, static_cast<const T*>(embedding.data),
                                x};
    return LaunchNorm(row, num_tokens, norm, static_cast<T*>(normed), stream);
  });
}

absl::Status CudaGatherRows(const int* rows, int num_rows, const CudaGather& a,
                            const CudaGather& b, cudaStream_t stream) {
  if (a.row_bytes % 16 != 0 || b.row_bytes % 16 != 0) {
    return InvalidArgument("rows of ", a.row_bytes, " and ", b.row_bytes,
                           " bytes are not multiples of 16");
  }
  if (num_rows == 0) return absl::OkStatus();
  const int num_units = (a.row_bytes + b.row_bytes) / 16;
  const LaunchConfig shape = {
      .grid = dim3(num_rows, CeilDiv(num_units, GatherPolicy::kThreads)),
      .block = GatherPolicy::kThreads};
  return Launch(GatherRows, shape, stream, rows, a, b);
}

absl::Status CudaSoftCap(float cap, int64_t size, float* x,
                         cudaStream_t stream) {
  if (!(cap > 0)) return InvalidArgument("a soft cap of ", cap);
  if (size == 0) return absl::OkStatus();
  const LaunchConfig shape = {
      .grid = dim3(static_cast<unsigned>(
          (size + SoftCapPolicy::kBlockSize - 1) / SoftCapPolicy::kBlockSize)),
      .block = SoftCapPolicy::kThreads};
  return Launch(SoftCap, shape, stream, cap, size, x);
}

absl::Status CudaAddToRows(const float* bias, int num_rows, int size, float* x,
                           cudaStream_t stream) {
  if (num_rows == 0 || size == 0) return absl::OkStatus();
  constexpr int kThreads = AddToRowsPolicy::kThreads;
  const LaunchConfig shape = {
      .grid = dim3((size + kThreads - 1) / kThreads, num_rows),
      .block = kThreads};
  return Launch(AddToRows, shape, stream, bias, size, x);
}

absl::Status CudaFillNormal(void* data, DType dtype, int num_rows, int num_cols,
                            int stride, float standard_deviation, uint64_t seed,
                            cudaStream_t stream) {
  if (num_rows == 0) return absl::OkStatus();
  const LaunchConfig shape = {
      .grid = dim3(std::min(num_rows, FillPolicy::kMaxBlocks)),
      .block = FillPolicy::kThreads};
  return WithType(dtype, [&]<typename T>(T) {
    return Launch(FillNormal<T>, shape, stream, static_cast<T*>(data), num_rows,
                  num_cols, stride, standard_deviation, seed);
  });
}

}  // namespace espalier
