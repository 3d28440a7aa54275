// TransformerWeights: the weights of a transformer, packed for its forward
// pass: q, k, v of a layer as one matrix, gate and up as one. Matrices keep
// bf16; norms and biases are widened to float32.
//
// Thread safety: immutable after loading.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "kernels/matmul/packed_matrix.h"
#include "model/checkpoint.h"
#include "model/transformer_config.h"

namespace espalier {

// What a model does not have is empty.
struct NormWeights {
  std::vector<float> weight;  // 1 is added, if norm_adds_one
  std::vector<float> bias;    // of NormKind::kLayer
};

struct ProductWeights {
  PackedMatrix matrix;      // [outputs, inputs]
  std::vector<float> bias;  // [outputs]
};

// Sizes as in TransformerConfig.
struct TransformerLayerWeights {
  NormWeights attention_norm;       // [hidden_size]
  ProductWeights qkv;               // [q_size + 2 * kv_size, hidden_size]
  NormWeights q_norm;               // [head_dim]
  NormWeights k_norm;               // [head_dim]
  ProductWeights output;            // [hidden_size, q_size]
  NormWeights post_attention_norm;  // [hidden_size]
  NormWeights mlp_norm;             // [hidden_size]
  // [2 * intermediate_size, hidden_size]: the gate's rows, then up's; or up's
  // alone.
  ProductWeights gate_up;
  ProductWeights down;        // [hidden_size, intermediate_size]
  NormWeights post_mlp_norm;  // [hidden_size]
};

struct TransformerWeights {
  PackedMatrix embedding;  // [vocab_size, hidden_size]
  PackedMatrix positions;  // [max_context, hidden_size]
  std::vector<TransformerLayerWeights> layers;
  NormWeights final_norm;
  PackedMatrix untied_head;  // [vocab_size, hidden_size]; empty if tied

  const PackedMatrix& head() const {
    return untied_head.num_rows() > 0 ? untied_head : embedding;
  }
};

// Finds and checks the tensors (transformer_tensors.h) and packs them.
//
// Allocates as many bytes as the tensors have in the files, and twice those of
// f16, of bf16 norms and biases and of bf16 that is stacked with another type,
// which all become f32; and a packed matrix has its rows rounded up to a
// multiple of 32, which next to nothing is in real models. So what a damaged
// file can ask for is at most 64 times its size (f16 matrices of one row).
// Matrices that are stored transposed are copied, one at a time.
//
// Errors: as FindTransformerTensors; kResourceExhausted if memory runs out.
absl::StatusOr<TransformerWeights> LoadTransformerWeights(
    const Checkpoint& checkpoint, const TransformerConfig& config);

}  // namespace espalier
