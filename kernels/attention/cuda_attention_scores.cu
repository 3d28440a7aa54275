// Reads a head's keys once for each query, mostly from L2. A window of Whisper
// large-v3 has 10 heads, 1,500 positions and some 100 queries: 6 MB of scores,
// which take longer on their way to host memory than to compute.
#include <cmath>

#include "base/cuda_launch.cuh"
#include "base/status.h"
#include "kernels/attention/cuda_attention_scores.h"
#include "kernels/cuda_element_type.cuh"
#include "kernels/cuda_vectors.cuh"

namespace espalier {
namespace {

struct AttentionScoresPolicy {
  static constexpr int kThreads = 128;
  // Lanes of a score: with four numbers each, those of a head of 64.
  static constexpr int kLanes = 16;
  static constexpr int kVector = 4;
  static constexpr int kMaxHeadDim = 256;
  static constexpr int kVectors = kMaxHeadDim / (kLanes * kVector);
  // Positions of a block. Their scores are written together, because host
  // memory takes single words slowly.
  static constexpr int kPositions = 128;
};

struct ScoredKeys {
  const void* keys = nullptr;  // the layer's
  int64_t page_stride = 0;
  int64_t head_stride = 0;
  int page_size = 1;
  int head_dim = 0;
  int heads_per_kv_head = 1;
  float scale = 1;
};

// Block (x, query, i): kPositions positions of heads[i].
template <typename T>
__global__ void __launch_bounds__(AttentionScoresPolicy::kThreads)
    WriteAttentionScores(const __grid_constant__ CudaAttentionScoresInputs in,
                         const __grid_constant__ ScoredKeys cache,
                         float* scores) {
  using Policy = AttentionScoresPolicy;
  constexpr int kDims = Policy::kLanes * Policy::kVector;
  constexpr int kAtOnce = Policy::kThreads / Policy::kLanes;
  __shared__ float found[Policy::kPositions];
  LaunchDependents();
  GridDependencyWait();
  const int query = blockIdx.y;
  const int head = in.heads.heads[blockIdx.z];
  const int dim = threadIdx.x % Policy::kLanes * Policy::kVector;
  const T* const q = static_cast<const T*>(in.q) +
                     int64_t{query} * in.q_stride + head * cache.head_dim;
  float4 a[Policy::kVectors] = {};
#pragma unroll
  for (int v = 0; v < Policy::kVectors; ++v) {
    if (dim + v * kDims < cache.head_dim) a[v] = LoadFour(q + dim + v * kDims);
  }
  const T* const keys = static_cast<const T*>(cache.keys) +
                        head / cache.heads_per_kv_head * cache.head_stride;
  const int first = blockIdx.x * Policy::kPositions;
  for (int i = threadIdx.x / Policy::kLanes; i < Policy::kPositions;
       i += kAtOnce) {
    // All lanes take part in the sum.
    const int position = min(first + i, in.num_positions - 1);
    const int page = in.table[position / cache.page_size];
    const T* const key = keys + page * cache.page_stride +
                         position % cache.page_size * cache.head_dim;
    float sum = 0;
#pragma unroll
    for (int v = 0; v < Policy::kVectors; ++v) {
      if (dim + v * kDims >= cache.head_dim) continue;
      const float4 b = LoadFour(key + dim + v * kDims);
      sum += (a[v].x * b.x + a[v].y * b.y) + (a[v].z * b.z + a[v].w * b.w);
    }
#pragma unroll
    for (int step = Policy::kLanes / 2; step > 0; step /= 2) {
      sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
    }
    if (dim == 0) found[i] = cache.scale * sum;
  }
  __syncthreads();
  const int64_t row =
      int64_t{query} * in.num_places + in.heads.places[blockIdx.z];
  float* const to = scores + row * in.num_positions;
  for (int i = threadIdx.x; i < Policy::kPositions; i += Policy::kThreads) {
    if (first + i < in.num_positions) to[first + i] = found[i];
  }
}

bool HasPossibleHeads(const CudaAttentionScoresInputs& in,
                      const CudaAttentionShape& shape) {
  if (in.heads.count < 1 || in.heads.count > kMaxCudaScoredHeads) return false;
  for (int i = 0; i < in.heads.count; ++i) {
    if (in.heads.heads[i] < 0 || in.heads.heads[i] >= shape.num_heads ||
        in.heads.places[i] < 0 || in.heads.places[i] >= in.num_places) {
      return false;
    }
  }
  return true;
}

}  // namespace

absl::Status CudaAttentionScores(const CudaAttentionScoresInputs& in,
                                 const CudaAttentionShape& shape,
                                 const CudaKvCache& cache, int layer,
                                 float* scores, cudaStream_t stream) {
  using Policy = AttentionScoresPolicy;
  const bool fits =
      shape.head_dim == cache.head_dim && shape.page_size == cache.page_size &&
      shape.num_kv_heads == cache.num_kv_heads && shape.dtype == cache.dtype &&
      shape.head_dim >= 8 && shape.head_dim <= Policy::kMaxHeadDim &&
      shape.head_dim % 8 == 0 && shape.num_heads % shape.num_kv_heads == 0 &&
      layer >= 0 && layer < cache.num_layers;
  if (!fits || !HasPossibleHeads(in, shape) || in.num_queries < 1 ||
      in.num_positions < 1 || in.q_stride < shape.num_heads * shape.head_dim) {
    return InvalidArgument("cannot report scores of ", in.heads.count,
                           " heads of ", shape.head_dim, ", ", in.num_queries,
                           " queries and ", in.num_positions, " positions");
  }
  const LaunchConfig launch = {
      .grid =
          dim3((in.num_positions + Policy::kPositions - 1) / Policy::kPositions,
               in.num_queries, in.heads.count),
      .block = dim3(Policy::kThreads)};
  return WithType(cache.dtype, [&]<typename T>(T) {
    const ScoredKeys keys = {
        .keys =
            static_cast<const T*>(cache.data) + layer * cache.layer_stride(),
        .page_stride = cache.page_stride(),
        .head_stride = cache.head_stride(),
        .page_size = cache.page_size,
        .head_dim = cache.head_dim,
        .heads_per_kv_head = shape.num_heads / shape.num_kv_heads,
        .scale = static_cast<float>(
            shape.scale > 0
                ? shape.scale
                : 1 / std::sqrt(static_cast<double>(shape.head_dim)))};
    return Launch(WriteAttentionScores<T>, launch, stream, in, keys, scores);
  });
}

}  // namespace espalier
