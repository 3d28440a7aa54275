// A decode step runs this on a few rows between two products: a launch, a round
// trip to L2, and one exchange between the warps of a row for each sum of a
// norm (LayerNorm two, a branch with a norm one more).
#include "base/cuda_launch.cuh"
#include "base/status.h"
#include "kernels/cuda_element_type.cuh"
#include "kernels/cuda_vectors.cuh"
#include "kernels/elementwise/cuda_residual.h"

namespace espalier {
namespace {

// One block per row, in registers, four numbers a vector. 512 threads, as in
// CudaAddRmsNorm with addends.
struct ResidualPolicy {
  static constexpr int kVector = 4;
  static constexpr int kThreads = 512;
  static constexpr int kBlockWidth = kThreads * kVector;
  static constexpr int kMaxVectors = kMaxCudaNormWidth / kBlockWidth;
};

// The first of a thread's v-th vector of a row.
__device__ __forceinline__ int FirstOf(int v) {
  return threadIdx.x * ResidualPolicy::kVector +
         v * ResidualPolicy::kBlockWidth;
}

__device__ __forceinline__ float4 Plus(float4 a, float4 b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}
__device__ __forceinline__ float4 Times(float4 a, float factor) {
  return {a.x * factor, a.y * factor, a.z * factor, a.w * factor};
}
__device__ __forceinline__ float4 Times(float4 a, float4 b) {
  return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w};
}
__device__ __forceinline__ float SumOf(float4 x) {
  return (x.x + x.y) + (x.z + x.w);
}
__device__ __forceinline__ float SumOfSquaresOf(float4 x) {
  return SumOf(Times(x, x));
}
// x - mean, and zero from the num_left-th number on.
__device__ __forceinline__ float4 Centred(float4 x, float mean, int num_left) {
  return {num_left > 0 ? x.x - mean : 0, num_left > 1 ? x.y - mean : 0,
          num_left > 2 ? x.z - mean : 0, num_left > 3 ? x.w - mean : 0};
}

// Sums over a block, the same in all its threads. One barrier each: the storage
// of a sum is free again when the next sum is past its barrier.
class BlockSums {
 public:
  static constexpr int kNumWarps = ResidualPolicy::kThreads / 32;
  struct Storage {
    float4 warps[2][kNumWarps / 4];
  };
  __device__ explicit BlockSums(Storage& storage) : storage_(storage) {}

  __device__ float Sum(float value) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      value += __shfl_xor_sync(~0u, value, step);
    }
    float4(&warps)[kNumWarps / 4] = storage_.warps[turn_];
    turn_ ^= 1;
    if (threadIdx.x % 32 == 0) {
      reinterpret_cast<float*>(warps)[threadIdx.x / 32] = value;
    }
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (const float4& four : warps) sum += SumOf(four);
    return sum;
  }

 private:
  Storage& storage_;
  int turn_ = 0;
};

// A thread's part of a row. Past the row's end it is zero.
template <int kVectors>
using RowPart = float4[kVectors];

// 1 / sqrt(mean(x^2) + epsilon).
template <int kVectors>
__device__ float RmsFactor(const RowPart<kVectors>& x, const CudaNorm& norm,
                           BlockSums& sums) {
  float sum = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) sum += SumOfSquaresOf(x[v]);
  const float mean = sums.Sum(sum) / static_cast<float>(norm.size);
  return 1.0f / sqrtf(mean + norm.epsilon);
}

// x becomes x - mean(x); returns 1 / sqrt(variance(x) + epsilon).
template <int kVectors>
__device__ float Centre(RowPart<kVectors>& x, const CudaNorm& norm,
                        BlockSums& sums) {
  float sum = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) sum += SumOf(x[v]);
  const float mean = sums.Sum(sum) / static_cast<float>(norm.size);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    x[v] = Centred(x[v], mean, norm.size - FirstOf(v));
  }
  return RmsFactor(x, norm, sums);
}

template <int kVectors>
__device__ void Normalise(const CudaNorm& norm, BlockSums& sums,
                          RowPart<kVectors>& x) {
  const float factor =
      norm.bias == nullptr ? RmsFactor(x, norm, sums) : Centre(x, norm, sums);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int i = FirstOf(v);
    if (i >= norm.width) continue;
    x[v] = Times(Times(x[v], factor), LoadFour(norm.weight + i));
    if (norm.bias != nullptr) x[v] = Plus(x[v], LoadFour(norm.bias + i));
  }
}

// The stream's rows plus a branch.
struct BranchedRow {
  static constexpr auto kDependency = GridDependency::kWaitsFirst;
  float* x;
  CudaBranch branch;
  int64_t partial_stride;

  template <int kVectors>
  __device__ void Load(const CudaNorm& norm, BlockSums& sums,
                       RowPart<kVectors>& out) const {
    const int64_t row = int64_t{blockIdx.x} * norm.width;
    RowPart<kVectors> added = {};
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int i = FirstOf(v);
      if (i >= norm.width) continue;
      out[v] = LoadFour(x + row + i);
      for (int p = 0; p < branch.partials.count; ++p) {
        const float* const partial = branch.partials.data + p * partial_stride;
        added[v] = Plus(added[v], LoadFour(partial + row + i));
      }
      if (branch.bias != nullptr) {
        added[v] = Plus(added[v], LoadFour(branch.bias + i));
      }
    }
    if (branch.post_norm != nullptr) {
      const float factor = RmsFactor(added, norm, sums);
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const int i = FirstOf(v);
        if (i >= norm.width) continue;
        added[v] =
            Times(Times(added[v], factor), LoadFour(branch.post_norm + i));
      }
    }
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int i = FirstOf(v);
      if (i >= norm.width) continue;
      out[v] = Plus(out[v], added[v]);
      StoreFour(out[v], x + row + i);
    }
  }
};

// Rows of the tables, which are also copied to the stream.
template <typename T>
struct EmbeddedTokenRow {
  static constexpr auto kDependency = GridDependency::kBarrier;
  const int* tokens;  // or null
  const T* token_table;
  float scale;
  const int* positions;
  const T* position_table;  // or null
  int token_without_position;
  float* x;

  template <int kVectors>
  __device__ void Load(const CudaNorm& norm, BlockSums& sums,
                       RowPart<kVectors>& out) const {
    const int row = blockIdx.x;
    const int token_id = tokens == nullptr ? row : tokens[row];
    const T* const token = token_table + int64_t{token_id} * norm.width;
    const T* const position =
        position_table == nullptr || token_id == token_without_position
            ? nullptr
            : position_table + int64_t{positions[row]} * norm.width;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int i = FirstOf(v);
      if (i >= norm.width) continue;
      out[v] = Times(LoadFour(token + i), scale);
      if (position != nullptr) out[v] = Plus(out[v], LoadFour(position + i));
      StoreFour(out[v], x + int64_t{row} * norm.width + i);
    }
  }
};

template <int kVectors, typename Row, typename T>
__global__ void __launch_bounds__(ResidualPolicy::kThreads)
    NormResidualRow(Row source, CudaNorm norm, T* out) {
  __shared__ BlockSums::Storage storage;
  BlockSums sums(storage);
  constexpr bool kIsBarrier = Row::kDependency == GridDependency::kBarrier;
  if constexpr (!kIsBarrier) LaunchDependents();
  GridDependencyWait();
  if constexpr (kIsBarrier) LaunchDependents();
  RowPart<kVectors> x = {};
  source.Load(norm, sums, x);
  if (norm.weight != nullptr) Normalise(norm, sums, x);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int i = FirstOf(v);
    if (i >= norm.width) continue;
    const int64_t at = int64_t{blockIdx.x} * norm.width + i;
    if (norm.replaces_x) StoreFour(x[v], source.x + at);
    StoreFour(x[v], out + at);
  }
}

template <int kVectors = 1, typename Row, typename T>
absl::Status LaunchNormOf(const Row& source, int num_rows, const CudaNorm& norm,
                          T* out, cudaStream_t stream) {
  if (kVectors * ResidualPolicy::kBlockWidth < norm.width) {
    if constexpr (kVectors < ResidualPolicy::kMaxVectors) {
      return LaunchNormOf<2 * kVectors>(source, num_rows, norm, out, stream);
    } else {
      return InvalidArgument("a norm of ", norm.width, " is wider than ",
                             kMaxCudaNormWidth);
    }
  }
  const LaunchConfig shape = {.grid = dim3(num_rows),
                              .block = ResidualPolicy::kThreads,
                              .dependency = Row::kDependency};
  return Launch(NormResidualRow<kVectors, Row, T>, shape, stream, source, norm,
                out);
}

absl::Status CheckNormWidth(const CudaNorm& norm) {
  if (norm.width > 0 && norm.width % 8 == 0) return absl::OkStatus();
  return InvalidArgument("a width of ", norm.width, " is not a multiple of 8");
}

}  // namespace

absl::Status CudaAddBranch(float* x, const CudaBranch& branch, int num_rows,
                           const CudaNorm& norm, DType dtype, void* out,
                           cudaStream_t stream) {
  RETURN_IF_ERROR(CheckNormWidth(norm));
  if (branch.post_norm != nullptr && branch.partials.count == 0) {
    return InvalidArgument("a norm of what is added already");
  }
  if (num_rows == 0) return absl::OkStatus();
  const BranchedRow row = {x, branch, int64_t{num_rows} * norm.width};
  return WithType(dtype, [&]<typename T>(T) {
    return LaunchNormOf(row, num_rows, norm, static_cast<T*>(out), stream);
  });
}

absl::Status CudaEmbedTokens(const int* tokens, const int* positions,
                             int num_tokens, const CudaEmbedding& embedding,
                             const CudaNorm& norm, float* x, void* normed,
                             cudaStream_t stream) {
  RETURN_IF_ERROR(CheckNormWidth(norm));
  for (const CudaMatrix& table : {embedding.tokens, embedding.positions}) {
    if (table.data == nullptr) continue;
    if (table.num_cols == norm.width && table.dtype == embedding.tokens.dtype) {
      continue;
    }
    return InvalidArgument("a table of ", table.num_cols,
                           " columns before a norm of ", norm.width,
                           ", or tables of two dtypes");
  }
  if (num_tokens == 0) return absl::OkStatus();
  return WithType(embedding.tokens.dtype, [&]<typename T>(T) {
    const EmbeddedTokenRow<T> row = {
        tokens,
        static_cast<const T*>(embedding.tokens.data),
        embedding.scale,
        positions,
        static_cast<const T*>(embedding.positions.data),
        embedding.token_without_position,
        x};
    return LaunchNormOf(row, num_tokens, norm, static_cast<T*>(normed), stream);
  });
}

}  // namespace espalier
