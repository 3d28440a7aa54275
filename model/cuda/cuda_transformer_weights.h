// CudaTransformerWeights: a model's config, and its weights in device memory,
// one allocation, in the layout in which the forward pass reads them:
//
//   qkv      q, k and v of a layer stacked, as on the host, their heads as
//            model/rotary_order.h has them
//   gate_up  blocks of 16 rows, eight gates and then their eight ups, so that a
//            product holds both halves of silu(gate) * up at once; without a
//            gate the ups
//   e4m3     matrices of layers with inputs in multiples of 64, where the model
//            has them so: CudaMatrix::fp8_scales; others of e4m3 are the bf16
//            that they stand for
//   vectors  norms and biases, f32, in the order of the rows that they belong
//            to; norms with the 1 that some models add to them
//   widths   hidden_size, intermediate_size and head_dim rounded up to
//   multiples
//            of 8, the rows and columns past them zero: they stay zero through
//            the whole pass
//
// Thread safety: immutable after loading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "base/cuda.h"
#include "base/dtype.h"
#include "kernels/cuda_matrix.h"
#include "kernels/matmul/weight_format.h"
#include "model/checkpoint.h"
#include "model/layer_parts.h"
#include "model/transformer_config.h"
#include "model/transformer_tensors.h"

namespace espalier {

// A model's sizes, as wide as its rows are in device memory.
struct CudaTransformerWidths {
  int hidden = 0;
  int intermediate = 0;  // the encoder's or the decoder's, the larger
  int head = 0;
  int q = 0;   // of all heads
  int kv = 0;  // of the keys, and of the values

  int qkv() const { return q + 2 * kv; }
};
CudaTransformerWidths WidthsOf(const TransformerConfig& config);

// [hidden], or [head] of queries and keys; null where the model has none.
struct CudaNormWeights {
  float* weight = nullptr;
  float* bias = nullptr;
};

// [outputs, inputs], as wide as rows are; no data where the model has none.
struct CudaProductWeights {
  CudaMatrix matrix;
  float* bias = nullptr;  // [outputs]; null: none
};

using CudaTransformerLayer = LayerParts<CudaNormWeights, CudaProductWeights>;

// An encoder, or a decoder.
struct CudaTransformerStack {
  CudaMatrix positions;  // [max_context or encoder.max_tokens, hidden], of
                         // positions that are learned; no data: none
  CudaNormWeights embedding_norm;
  // Of scores: [num_heads, 2 * max_distance + 1], or null.
  float* distance_biases = nullptr;
  std::vector<CudaTransformerLayer> layers;
  CudaNormWeights final_norm;
};

// What numbers are, in device memory.
struct CudaWeightTypes {
  DType dtype = DType::kBFloat16;
  // kFp8: layers' matrices are e4m3. kAsStored: those of the checkpoint that
  // are, if dtype is kBFloat16.
  WeightFormat format = WeightFormat::kAsStored;
};

struct CudaTransformerWeights : CudaTransformerStack {
  TransformerConfig config;
  CudaWeightTypes types;
  CudaTransformerWidths widths;
  CudaMatrix embedding;  // [vocab_size, hidden]
  CudaMatrix head;       // [vocab_size, hidden]; the embedding's memory if tied
  float* logits_bias = nullptr;  // [vocab_size]
  CudaTransformerStack encoder;  // no layers if there is none

  DeviceBuffer<std::byte> memory;  // what all of these point into
};

// The weights of the largest matrix that rows are multiplied with.
int64_t MaxMatrixWeights(const CudaTransformerWeights& weights);
// The same of those stored as e4m3 codes; 0 if there is none.
int64_t MaxFp8Weights(const CudaTransformerWeights& weights);

// All pointers and shapes, and zeros everywhere: what is past a tensor's rows
// and columns stays zero. `tensors` are those to be loaded; null: none is
// stored as e4m3.
// Errors: kResourceExhausted, naming the bytes, if device memory runs out.
absl::StatusOr<CudaTransformerWeights> AllocateCudaTransformerWeights(
    const TransformerConfig& config, const CudaWeightTypes& types,
    const TransformerTensors* tensors = nullptr);

// Converts the tensors to their types, rounding to nearest even, and uploads
// them. Throws std::bad_alloc.
// Errors: as FindTransformerTensors; kInvalidArgument naming the tensor and the
// value if one that is finite has no finite place in float16, or as ReadFp8Row
// (model/fp8_rows.h); kResourceExhausted, naming the bytes, if device memory
// runs out.
// REQUIRES: types.format is kAsStored, or kFp8 and types.dtype kBFloat16.
absl::StatusOr<CudaTransformerWeights> LoadCudaTransformerWeights(
    const Checkpoint& checkpoint, const TransformerConfig& config,
    const CudaWeightTypes& types);

// Normally distributed weights of deviation 0.02, norms of 1, biases of 0.
absl::StatusOr<CudaTransformerWeights> RandomCudaTransformerWeights(
    const TransformerConfig& config, const CudaWeightTypes& types);

}  // namespace espalier
