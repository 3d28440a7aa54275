// Merges the partial results of attention.
#include <algorithm>

#include "base/cuda_launch.cuh"
#include "kernels/attention/cuda_attention_launch.cuh"
#include "kernels/cuda_element_type.cuh"

namespace espalier::cuda_attention {
namespace {

// One warp per row, four dimensions per lane: a row takes one memory latency,
// and all rows of a step overlap.
constexpr int kWarps = 2;
constexpr int kThreads = 32 * kWarps;
// As many as fit in 64 registers a thread; half a row at a time needs more.
template <int kPieces>
constexpr int kBlocksPerSm = kPieces == 1 ? 16 : 12;
// Rows that are read before the first is added.
template <int kPieces>
constexpr int kAtOnce = kPieces == 1 ? 7 : 4;

// A lane's part of a row of partials.
template <int kPieces>
struct Part {
  float maximum = -INFINITY;
  float sum = 0;
  float4 pieces[kPieces] = {};
};

template <int kPieces>
__device__ __forceinline__ Part<kPieces> LoadPart(const float* row,
                                                  int head_dim) {
  Part<kPieces> part;
  const float2 weight = __ldcg(reinterpret_cast<const float2*>(row + head_dim));
  part.maximum = weight.x;
  part.sum = weight.y;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const int dim = 4 * (threadIdx.x % 32 + 32 * i);
    if (dim < head_dim) {
      part.pieces[i] = __ldcg(reinterpret_cast<const float4*>(row + dim));
    }
  }
  return part;
}

// A part whose sums are 0 has no effect whatever its maximum, which may be
// -inf.
template <int kPieces>
__device__ __forceinline__ void Add(const Part<kPieces>& other,
                                    Part<kPieces>& all) {
  const float maximum = fmaxf(all.maximum, other.maximum);
  const float shift = Shift(maximum);
  const float factor = Exp2(all.maximum - shift);
  const float other_factor = Exp2(other.maximum - shift);
  all.maximum = maximum;
  all.sum = all.sum * factor + other.sum * other_factor;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    float4& x = all.pieces[i];
    const float4& y = other.pieces[i];
    x.x = x.x * factor + y.x * other_factor;
    x.y = x.y * factor + y.y * other_factor;
    x.z = x.z * factor + y.z * other_factor;
    x.w = x.w * factor + y.w * other_factor;
  }
}

template <typename T, int kPieces>
__device__ __forceinline__ void MergeRow(const Params& params, int query,
                                         int head, int begin, int end) {
  Part<kPieces> all;
  for (int first = begin; first < end; first += kAtOnce<kPieces>) {
    Part<kPieces> parts[kAtOnce<kPieces>];
#pragma unroll
    for (int i = 0; i < kAtOnce<kPieces>; ++i) {
      if (first + i < end) {
        parts[i] = LoadPart<kPieces>(PartialRow(params, first + i, head),
                                     params.head_dim);
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce<kPieces>; ++i) {
      if (first + i < end) Add(parts[i], all);
    }
  }
  T* const result = OutputRow<T>(params, query, head);
  const float scale = 1.0f / all.sum;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const int dim = 4 * (threadIdx.x % 32 + 32 * i);
    const float4& x = all.pieces[i];
    if (dim < params.head_dim) {
      StoreFour({x.x * scale, x.y * scale, x.z * scale, x.w * scale},
                result + dim);
    }
  }
}

// Blocks are queries times groups of kWarps heads.
template <typename T, int kPieces>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm<kPieces>)
    Merge(const __grid_constant__ Params params) {
  LaunchDependents();
  const int head = blockIdx.y * kWarps + threadIdx.x / 32;
  int query = blockIdx.x;
  // A part of the work list, complete before the forward pass begins.
  int begin = params.inputs.partial_indptr[query];
  int end = params.inputs.partial_indptr[query + 1];
  GridDependencyWait();
  if (head >= params.num_heads) return;
  while (true) {
    if (begin < end) MergeRow<T, kPieces>(params, query, head, begin, end);
    query += gridDim.x;
    if (query >= params.inputs.max_queries) return;
    begin = params.inputs.partial_indptr[query];
    end = params.inputs.partial_indptr[query + 1];
  }
}

template <typename T, int kPieces>
absl::Status LaunchPieces(const Params& params, const CudaDevice& device,
                          cudaStream_t stream) {
  const int head_groups = (params.num_heads + kWarps - 1) / kWarps;
  const int num_blocks = kBlocksPerSm<kPieces> * device.num_sms;
  const dim3 grid(std::clamp(num_blocks / head_groups, 1,
                             std::max(params.inputs.max_queries, 1)),
                  head_groups);
  return Launch(Merge<T, kPieces>,
                {.grid = grid,
                 .block = kThreads,
                 .dependency = GridDependency::kReadsEarly},
                stream, params);
}

}  // namespace

absl::Status LaunchMerge(DType dtype, const Params& params,
                         const CudaDevice& device, cudaStream_t stream) {
  return WithType(dtype, [&]<typename T>(T) {
    return params.head_dim <= 128 ? LaunchPieces<T, 1>(params, device, stream)
                                  : LaunchPieces<T, 2>(params, device, stream);
  });
}

}  // namespace espalier::cuda_attention
