// Processes a few heads of a few tokens between two other kernels, so its cost
// is a launch and a round trip to L2. Reads and writes the step's queries and
// keys once, and the values too if there is a bias.
#include "base/cuda_launch.cuh"
#include "base/status.h"
#include "kernels/cuda_element_type.cuh"
#include "kernels/cuda_vectors.cuh"
#include "kernels/elementwise/cuda_finish_heads.h"

namespace espalier {
namespace {

// Numbers are read and written four at a time: 16 bytes of f32, 8 of the
// 16-bit types. Four divide every head.
constexpr int kHeadVector = 4;
constexpr int kWarp = 32;

// One warp per head, at most two vectors a thread. Small blocks, because a
// decode step has few heads in all.
struct FinishHeadsPolicy {
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kVectors =
      kMaxCudaFinishedHeadDim / (kWarp * kHeadVector);
};

__device__ float4 Add(float4 a, float4 b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}
__device__ float4 Multiply(float4 a, float factor, float4 b) {
  return {a.x * factor * b.x, a.y * factor * b.y, a.z * factor * b.z,
          a.w * factor * b.w};
}

// Every lane has the same sum, added up in the same order.
__device__ float SumOverWarp(float value) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFFu, value, step);
  }
  return value;
}

// Block (t, y) has heads [y * kWarps, (y + 1) * kWarps) of token t. The weights
// are constant, so they are loaded before the previous kernel ends.
template <typename T>
__global__ void __launch_bounds__(FinishHeadsPolicy::kThreads)
    FinishHeads(T* qkv, CudaHeadShape shape, CudaHeadWeights weights) {
  constexpr int kVectors = FinishHeadsPolicy::kVectors;
  LaunchDependents();
  const int head = blockIdx.y * FinishHeadsPolicy::kWarps + threadIdx.x / kWarp;
  const int num_all = shape.num_heads + 2 * shape.num_kv_heads;
  const bool is_there = head < num_all;
  const int first = threadIdx.x % kWarp * kHeadVector;
  const float* const norm = head < shape.num_heads ? weights.q_norm
                            : head < shape.num_heads + shape.num_kv_heads
                                ? weights.k_norm
                                : nullptr;
  float4 bias[kVectors] = {};
  float4 scale[kVectors] = {};
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int i = first + v * kWarp * kHeadVector;
    if (!is_there || i >= shape.head_dim) continue;
    if (weights.bias != nullptr) {
      bias[v] = LoadFour(weights.bias + head * shape.head_dim + i);
    }
    if (norm != nullptr) scale[v] = LoadFour(norm + i);
  }
  GridDependencyWait();
  // A warp has one head, so that all its lanes return here.
  if (!is_there) return;
  T* const at = qkv + (int64_t{blockIdx.x} * num_all + head) * shape.head_dim;
  float4 x[kVectors] = {};
  float sum = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int i = first + v * kWarp * kHeadVector;
    if (i >= shape.head_dim) continue;
    x[v] = LoadFour(at + i);
    if (weights.bias != nullptr) x[v] = Add(x[v], bias[v]);
    sum += (x[v].x * x[v].x + x[v].y * x[v].y) +
           (x[v].z * x[v].z + x[v].w * x[v].w);
  }
  float factor = 1;
  if (norm != nullptr) {
    const float mean = SumOverWarp(sum) / static_cast<float>(shape.norm_size);
    factor = 1.0f / sqrtf(mean + weights.epsilon);
  }
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int i = first + v * kWarp * kHeadVector;
    if (i >= shape.head_dim) continue;
    StoreFour(norm == nullptr ? x[v] : Multiply(x[v], factor, scale[v]),
              at + i);
  }
}

}  // namespace

absl::Status CudaFinishHeads(void* qkv, DType dtype, int num_tokens,
                             const CudaHeadShape& given,
                             const CudaHeadWeights& weights,
                             cudaStream_t stream) {
  CudaHeadShape shape = given;
  if (shape.norm_size == 0) shape.norm_size = shape.head_dim;
  if (shape.head_dim < 8 || shape.head_dim % 8 != 0 ||
      shape.head_dim > kMaxCudaFinishedHeadDim) {
    return InvalidArgument("a head of ", shape.head_dim,
                           " is not a multiple of 8 up to ",
                           kMaxCudaFinishedHeadDim);
  }
  if (num_tokens == 0 || weights.empty()) return absl::OkStatus();
  // Values have no norm: without a bias they are not changed.
  const int num_touched =
      shape.num_heads + (weights.bias == nullptr ? 1 : 2) * shape.num_kv_heads;
  const LaunchConfig launch = {
      .grid = dim3(num_tokens, (num_touched + FinishHeadsPolicy::kWarps - 1) /
                                   FinishHeadsPolicy::kWarps),
      .block = FinishHeadsPolicy::kThreads,
      .dependency = GridDependency::kWaitsFirst};
  return WithType(dtype, [&]<typename T>(T) {
    return Launch(FinishHeads<T>, launch, stream, static_cast<T*>(qkv), shape,
                  weights);
  });
}

}  // namespace espalier
