// Moves 3 numbers an output (2 without a gate), mostly from L2.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <limits>

#include "base/cuda_launch.cuh"
#include "base/status.h"
#include "kernels/cuda_element_type.cuh"
#include "kernels/cuda_vectors.cuh"
#include "kernels/matmul/cuda_activate.h"

namespace espalier {
namespace {

// A thread has eight outputs: loads of 16 or 32 bytes. 256 threads fill a
// multiprocessor eight times.
constexpr int kActivateThreads = 256;

template <typename T>
struct alignas(16) EightOf {
  T values[8];
};

struct Floats8 {
  float values[8];
};

template <typename T>
__device__ __forceinline__ Floats8 LoadSums(const EightOf<T>* sums,
                                            const float* bias) {
  const EightOf<T> eight = *sums;
  Floats8 result;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    result.values[j] = static_cast<float>(eight.values[j]);
  }
  if (bias == nullptr) return result;
#pragma unroll
  for (int j = 0; j < 8; j += 4) {
    const float4 four = LoadFour(bias + j);
    result.values[j] += four.x;
    result.values[j + 1] += four.y;
    result.values[j + 2] += four.z;
    result.values[j + 3] += four.w;
  }
  return result;
}

// The cumulative distribution of a normal variable, within 1e-7: Abramowitz and
// Stegun, Handbook of Mathematical Functions, 7.1.26. erff takes twice as long,
// which many rows would notice. A lower tail is no difference of large numbers.
__device__ __forceinline__ float NormalCdf(float x) {
  constexpr float kRootOfHalf = 0.70710678118655f;  // sqrt(1 / 2)
  const float z = fabsf(x) * kRootOfHalf;
  const float t = __fdividef(1.0f, fmaf(0.3275911f, z, 1.0f));
  float sum = fmaf(t, 1.061405429f, -1.453152027f);
  sum = fmaf(t, sum, 1.421413741f);
  sum = fmaf(t, sum, -0.284496736f);
  sum = fmaf(t, sum, 0.254829592f);
  const float tail = 0.5f * t * sum * __expf(-z * z);
  return x < 0 ? tail : 1 - tail;
}

// Accurate to a few roundings of T, so that f32 gives the same tokens as
// transformers.
template <typename T>
__device__ __forceinline__ float Activated(float x, CudaActivationKind kind) {
  constexpr float kSlope = 0.7978845608028654f;     // sqrt(2 / pi)
  constexpr float kRootOfHalf = 0.70710678118655f;  // sqrt(1 / 2)
  switch (kind) {
    case CudaActivationKind::kSilu:
      return x / (1 + expf(-x));
    case CudaActivationKind::kGeluTanh:
      return 0.5f * x * (1 + tanhf(kSlope * (x + 0.044715f * x * x * x)));
    case CudaActivationKind::kGelu:
      if constexpr (sizeof(T) == 2) return x * NormalCdf(x);
      return 0.5f * x * (1 + erff(x * kRootOfHalf));
    case CudaActivationKind::kRelu:
      break;  // nvcc needs a statement after the switch
  }
  return x < 0 ? 0 : x;  // a NaN stays one
}

// One thread computes eight neighbouring outputs of a row.
template <bool kHasGate, typename T>
__global__ void __launch_bounds__(kActivateThreads)
    Activate(const EightOf<T>* sums, unsigned num_eights, unsigned row_eights,
             const float* bias, CudaActivationKind kind, EightOf<T>* out) {
  LaunchDependents();
  GridDependencyWait();
  const unsigned i = blockIdx.x * kActivateThreads + threadIdx.x;
  if (i >= num_eights) return;
  constexpr int kParts = kHasGate ? 2 : 1;
  const float* const first_bias =
      bias == nullptr ? nullptr : bias + i % row_eights * (8 * kParts);
  Floats8 result = LoadSums(sums + size_t{i} * kParts, first_bias);
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    result.values[j] = Activated<T>(result.values[j], kind);
  }
  if constexpr (kHasGate) {
    const Floats8 ups = LoadSums(sums + size_t{i} * kParts + 1,
                                 bias == nullptr ? nullptr : first_bias + 8);
#pragma unroll
    for (int j = 0; j < 8; ++j) result.values[j] *= ups.values[j];
  }
  EightOf<T> rounded;
#pragma unroll
  for (int j = 0; j < 8; ++j) rounded.values[j] = T(result.values[j]);
  out[i] = rounded;
}

}  // namespace

absl::Status CheckActivation(const CudaActivation& activation, int num_sums) {
  const int unit = activation.has_gate ? 16 : 8;
  if (num_sums >= unit && num_sums % unit == 0) return absl::OkStatus();
  return InvalidArgument("a feed-forward part of ", num_sums,
                         " rows, not a multiple of ", unit);
}

absl::Status CudaActivate(const void* sums, DType dtype, int num_rows,
                          int num_sums, const CudaActivation& activation,
                          void* out, cudaStream_t stream) {
  RETURN_IF_ERROR(CheckActivation(activation, num_sums));
  if (num_rows == 0) return absl::OkStatus();
  const int row_eights = num_sums / (activation.has_gate ? 16 : 8);
  const int64_t num_eights = int64_t{num_rows} * row_eights;
  if (num_eights > std::numeric_limits<int>::max()) {
    return InvalidArgument("an activation of ", num_rows, " rows of ", num_sums,
                           ", too many at once");
  }
  const LaunchConfig shape = {
      .grid = dim3(static_cast<unsigned>((num_eights + kActivateThreads - 1) /
                                         kActivateThreads)),
      .block = kActivateThreads};
  return WithType(dtype, [&]<typename T>(T) {
    return Launch(activation.has_gate ? Activate<true, T> : Activate<false, T>,
                  shape, stream, static_cast<const EightOf<T>*>(sums),
                  static_cast<unsigned>(num_eights),
                  static_cast<unsigned>(row_eights), activation.bias,
                  activation.kind, static_cast<EightOf<T>*>(out));
  });
}

}  // namespace espalier
