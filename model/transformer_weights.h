// TransformerWeights: the weights of a transformer, packed for its forward
// pass: q, k, v of a layer as one matrix, gate and up as one. Matrices keep
// bf16; norms are widened to float32.
//
// Thread safety: immutable after loading.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "kernels/matmul/packed_matrix.h"
#include "model/checkpoint.h"
#include "model/transformer_config.h"

namespace espalier {

struct TransformerLayerWeights {
  std::vector<float> attention_norm;  // [hidden_size]
  PackedMatrix qkv;                   // [q_size + 2 * kv_size, hidden_size]
  PackedMatrix output;                // [hidden_size, q_size]
  std::vector<float> mlp_norm;        // [hidden_size]
  PackedMatrix gate_up;               // [2 * intermediate_size, hidden_size]
  PackedMatrix down;                  // [hidden_size, intermediate_size]
};

struct TransformerWeights {
  PackedMatrix embedding;  // [vocab_size, hidden_size]
  std::vector<TransformerLayerWeights> layers;
  std::vector<float> final_norm;  // [hidden_size]
  PackedMatrix untied_head;       // [vocab_size, hidden_size]; empty if tied

  const PackedMatrix& head() const {
    return untied_head.num_rows() > 0 ? untied_head : embedding;
  }
};

// Finds and checks the tensors (transformer_tensors.h) and packs them.
//
// Allocates as many bytes as the tensors have in the files, and twice those of
// f16, of bf16 norms and of bf16 that is stacked with another type, which all
// become f32; and a packed matrix has its rows rounded up to a multiple of 32,
// which next to nothing is in real models. So what a damaged file can ask for
// is at most 64 times its size (f16 matrices of one row).
//
// Errors: as FindTransformerTensors; kResourceExhausted if memory runs out.
absl::StatusOr<TransformerWeights> LoadTransformerWeights(
    const Checkpoint& checkpoint, const TransformerConfig& config);

}  // namespace espalier
