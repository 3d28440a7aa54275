// CudaTransformerWeights: a model's config, and its weights in device memory,
// one allocation, in the layout in which the forward pass reads them:
//
//   qkv      q, k and v of a layer stacked, with heads in the order of
//            model/rotary_order.h
//   gate_up  blocks of 16 rows, eight of gate and the same eight of up, so that
//            the epilogue has both halves of silu(gate) * up; without a gate,
//            up alone
//   e4m3     layers' matrices that are e4m3 keep codes and scales
//            (CudaMatrix::fp8_scales) if their inputs are a multiple of 64, and
//            are dequantised to bf16 otherwise
//   conv     [outputs, frames, channels], the order of CudaIm2Col's rows
//   vectors  norms and biases, f32, in the row order of their matrices; norms
//            include the 1 of norm_adds_one
//   widths   hidden_size, intermediate_size, head_dim and the features of a
//            frame are rounded up to a multiple of 8; the padding is zero and
//            stays zero through the pass
//
// Thread safety: immutable after loading.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "base/cuda.h"
#include "base/dtype.h"
#include "kernels/cuda_matrix.h"
#include "kernels/matmul/weight_format.h"
#include "model/checkpoint.h"
#include "model/transformer_config.h"
#include "model/transformer_parts.h"
#include "model/transformer_tensors.h"

namespace espalier {

// A model's sizes, padded as its rows are in device memory.
struct CudaTransformerWidths {
  int hidden = 0;
  int intermediate = 0;  // the larger of the encoder's and the decoder's
  int head = 0;
  int q = 0;    // all heads
  int kv = 0;   // the keys' width, which is also the values'
  int mel = 0;  // features of a frame; 0: the encoder reads tokens, or none

  int qkv() const { return q + 2 * kv; }
  // The wider row of the two convolutions' matrices; 0: there are none.
  int convolution() const {
    return mel == 0 ? 0 : kNumTaps * std::max(mel, hidden);
  }
};
CudaTransformerWidths WidthsOf(const TransformerConfig& config);

// [hidden], or [head] for q_norm and k_norm; null if the model has none.
struct CudaNormWeights {
  float* weight = nullptr;
  float* bias = nullptr;
};

// [outputs, inputs], padded; no data if the model has none.
struct CudaProductWeights {
  CudaMatrix matrix;
  float* bias = nullptr;  // [outputs]; null: none
};

// Tables are padded matrices; no data if the model has none. Positions are
// learned ones, [max_context or encoder.max_tokens, hidden].
using CudaWeightParts =
    TransformerParts<CudaNormWeights, CudaProductWeights, CudaMatrix>;

// An encoder, or a decoder, and its weights outside of layers. A tied head has
// the embedding's memory, and the head's bias is that of the logits.
struct CudaTransformerStack : CudaWeightParts {
  // Returns those of a layer; null: none.
  const float* distance_biases_of(size_t layer) const {
    if (distance_biases.empty()) return nullptr;
    return distance_biases[distance_biases.size() == 1 ? 0 : layer];
  }

  // Biases of attention scores, [num_heads, 2 * max_distance + 1]: of all
  // layers, or of each (has_layer_distances), or none.
  std::vector<float*> distance_biases;
  std::vector<CudaWeightParts> layers;
};

// Number formats in device memory.
struct CudaWeightTypes {
  DType dtype = DType::kBFloat16;
  // kFp8: layers' matrices are e4m3. kAsStored: matrices that the checkpoint
  // stores as e4m3 stay so, if dtype is kBFloat16.
  WeightFormat format = WeightFormat::kAsStored;
};

struct CudaTransformerWeights : CudaTransformerStack {
  TransformerConfig config;
  CudaWeightTypes types;
  int device_ordinal = 0;  // device of `memory`
  CudaTransformerWidths widths;
  CudaTransformerStack encoder;  // without layers in a decoder-only model

  DeviceBuffer<std::byte> memory;  // owns all of the above
};

// Returns the number of weights of the largest matrix in a product.
int64_t MaxMatrixWeights(const CudaTransformerWeights& weights);
// Returns the number of weights of the largest e4m3 matrix; 0 if there is none.
int64_t MaxFp8Weights(const CudaTransformerWeights& weights);

// Sets all pointers and shapes and fills the memory with zeros, which the
// padding keeps. `tensors` are those that will be loaded, for their e4m3
// formats; null if none is e4m3.
// Errors: kResourceExhausted, naming the bytes, if device memory runs out.
absl::StatusOr<CudaTransformerWeights> AllocateCudaTransformerWeights(
    const TransformerConfig& config, const CudaWeightTypes& types,
    const TransformerTensors* tensors = nullptr);

// Converts the tensors to their types, rounding to nearest even, and uploads
// them. Throws std::bad_alloc.
// Errors: as FindTransformerTensors; kInvalidArgument naming the tensor and the
// value if a finite weight overflows float16, or as ReadFp8Row
// (model/fp8_rows.h); kResourceExhausted, naming the bytes, if device memory
// runs out.
// REQUIRES: types.format is kAsStored, or kFp8 and types.dtype kBFloat16.
absl::StatusOr<CudaTransformerWeights> LoadCudaTransformerWeights(
    const Checkpoint& checkpoint, const TransformerConfig& config,
    const CudaWeightTypes& types);

// Uploads other tensors of the same config and types to where the weights are.
// Throws std::bad_alloc.
// Errors: as LoadCudaTransformerWeights; some tensors may be uploaded then.
// REQUIRES: no kernel reads the weights meanwhile.
absl::Status UploadTransformerTensors(const TransformerTensors& tensors,
                                      const CudaTransformerWeights& weights);

}  // namespace espalier
