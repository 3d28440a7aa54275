// TransformerTensors: the tensors of a checkpoint, each found under its
// transformers name and checked against config.json, before anything is made
// of them. Nothing is copied: parts point into the checkpoint's files.
//
// Tensors the architecture does not name are not looked at, as in transformers.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "kernels/matmul/packed_matrix.h"
#include "model/checkpoint.h"
#include "model/transformer_config.h"

namespace espalier {

// Row-major, in one of the dtypes of DType; a norm has num_rows numbers.
using TransformerTensor = PackedMatrix::Part;

struct TransformerLayerTensors {
  TransformerTensor attention_norm;  // [hidden_size]
  TransformerTensor q;               // [q_size, hidden_size]
  TransformerTensor k;               // [kv_size, hidden_size]
  TransformerTensor v;               // [kv_size, hidden_size]
  TransformerTensor output;          // [hidden_size, q_size]
  TransformerTensor mlp_norm;        // [hidden_size]
  TransformerTensor gate;            // [intermediate_size, hidden_size]
  TransformerTensor up;              // [intermediate_size, hidden_size]
  TransformerTensor down;            // [hidden_size, intermediate_size]
};

struct TransformerTensors {
  TransformerTensor embedding;   // [vocab_size, hidden_size]
  TransformerTensor head;        // [vocab_size, hidden_size]; no rows if tied
  TransformerTensor final_norm;  // [hidden_size]
  std::vector<TransformerLayerTensors> layers;
};

// The result lives as long as the checkpoint. Throws std::bad_alloc.
// Errors: kInvalidArgument naming the file (with shards, the one that has the
// tensor), the tensor and the value, of which 60 bytes are shown, if a tensor
// is missing or its shape or dtype (BF16, F16, F32) is wrong.
absl::StatusOr<TransformerTensors> FindTransformerTensors(
    const Checkpoint& checkpoint, const TransformerConfig& config);

}  // namespace espalier
