// The activation of a feed-forward layer as a kernel of its own: GELU, ReLU,
// biases, or no gate. silu(gate) * up without biases needs no kernel; the
// product applies it to its sums (CudaEpilogue::kSiluMul).
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "base/dtype.h"

namespace espalier {

enum class CudaActivationKind {
  kSilu,
  kGeluTanh,
  kGelu,  // exact, by erf
  kRelu,
};

struct CudaActivation {
  // activation(gate) * up, rows of the product in blocks of 16, eight gates,
  // then their eight ups; else activation(up), rows as they are.
  bool has_gate = true;
  CudaActivationKind kind = CudaActivationKind::kSilu;
  const float* bias = nullptr;  // [num_sums], as the rows; null: none
};

// out = activation(sums + bias), row by row.
//   sums  [num_rows, num_sums]      dtype  device
//   out   [num_rows, num_sums / 2]  dtype  device; without a gate
//         [num_rows, num_sums]
// All 16-byte aligned; `out` does not overlap `sums`, but without a gate it may
// be `sums`. Arithmetic is float32 in
// every dtype, rounded once on the way out; NaN and infinities propagate as in
// kernels/elementwise/elementwise.h. Enqueues on `stream` and returns; never
// allocates, may be captured.
// Errors: as CheckActivation; kInternal if the launch is refused.
absl::Status CudaActivate(const void* sums, DType dtype, int num_rows,
                          int num_sums, const CudaActivation& activation,
                          void* out, cudaStream_t stream);

// kInvalidArgument if num_sums is no multiple of 16, or of 8 without a gate.
absl::Status CheckActivation(const CudaActivation& activation, int num_sums);

}  // namespace espalier
