// CudaTransformerWeights: a model's weights in device memory, one
// allocation, in the layout in which the forward pass reads them:
//
//   qkv      q, k and v of a layer stacked, as on the host; where heads are
//            rotated in part, in an order in which that is rotating all of them
//            (model/rotary_order.h)
//   gate_up  blocks of 16 rows, eight gates and then their eight ups, so that a
//            product holds both halves of silu(gate) * up at once
//   norms    f32, with the 1 that some models add to them
//   widths   hidden_size and intermediate_size rounded up to multiples of 8,
//            the rows and columns past them zero: they stay zero through the
//            whole pass
//
// Thread safety: immutable after loading.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "base/cuda.h"
#include "base/dtype.h"
#include "kernels/matmul/cuda_matmul.h"
#include "model/checkpoint.h"
#include "model/transformer_config.h"

namespace espalier {

struct CudaTransformerLayer {
  float* attention_norm = nullptr;  // [hidden_width]
  CudaMatrix qkv;                   // [q_size + 2 * kv_size, hidden_width]
  // Null where the model has none.
  float* qkv_bias = nullptr;  // [q_size + 2 * kv_size]
  float* q_norm = nullptr;    // [head_dim]
  float* k_norm = nullptr;    // [head_dim]
  CudaMatrix output;          // [hidden_width, q_size]
  float* mlp_norm = nullptr;  // [hidden_width]
  CudaMatrix gate_up;         // [2 * intermediate_width, hidden_width]
  CudaMatrix down;            // [hidden_width, intermediate_width]
};

struct CudaTransformerWeights {
  int hidden_width = 0;
  int intermediate_width = 0;
  CudaMatrix embedding;  // [vocab_size, hidden_width]
  CudaMatrix head;       // the same; the same memory if tied
  float* final_norm = nullptr;
  std::vector<CudaTransformerLayer> layers;

  DeviceBuffer<std::byte> memory;  // what all of these point into
};

// Converts the tensors to `dtype`, rounding to nearest even, and uploads them.
// Throws std::bad_alloc.
// REQUIRES: q_size and kv_size are multiples of 8.
// Errors: as FindTransformerTensors; kInvalidArgument naming the tensor and the
// value if one that is finite has no finite place in float16;
// kResourceExhausted, naming the bytes, if device memory runs out.
absl::StatusOr<CudaTransformerWeights> LoadCudaTransformerWeights(
    const Checkpoint& checkpoint, const TransformerConfig& config, DType dtype);

// Normally distributed weights of deviation 0.02, norms of 1, no biases.
absl::StatusOr<CudaTransformerWeights> RandomCudaTransformerWeights(
    const TransformerConfig& config, DType dtype);

}  // namespace espalier
