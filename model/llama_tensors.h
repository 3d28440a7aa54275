// LlamaTensors: the tensors of a Llama-family checkpoint, each found under its
// transformers name and checked against config.json, before anything is made
// of them. Nothing is copied: parts point into the checkpoint's files.
//
// Tensors the architecture does not name are not looked at, as in transformers.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "kernels/matmul/packed_matrix.h"
#include "model/checkpoint.h"
#include "model/llama_config.h"

namespace espalier {

// Row-major, in one of the dtypes of DType; a norm has num_rows numbers.
using LlamaTensor = PackedMatrix::Part;

struct LlamaLayerTensors {
  LlamaTensor attention_norm;  // [hidden_size]
  LlamaTensor q;               // [q_size, hidden_size]
  LlamaTensor k;               // [kv_size, hidden_size]
  LlamaTensor v;               // [kv_size, hidden_size]
  LlamaTensor output;          // [hidden_size, q_size]
  LlamaTensor mlp_norm;        // [hidden_size]
  LlamaTensor gate;            // [intermediate_size, hidden_size]
  LlamaTensor up;              // [intermediate_size, hidden_size]
  LlamaTensor down;            // [hidden_size, intermediate_size]
};

struct LlamaTensors {
  LlamaTensor embedding;   // [vocab_size, hidden_size]
  LlamaTensor head;        // [vocab_size, hidden_size]; no rows if tied
  LlamaTensor final_norm;  // [hidden_size]
  std::vector<LlamaLayerTensors> layers;
};

// The result lives as long as the checkpoint. Throws std::bad_alloc.
// Errors: kInvalidArgument naming the file (with shards, the one that has the
// tensor), the tensor and the value, of which 60 bytes are shown, if a tensor
// is missing or its shape or dtype (BF16, F16, F32) is wrong.
absl::StatusOr<LlamaTensors> FindLlamaTensors(const Checkpoint& checkpoint,
                                              const LlamaConfig& config);

}  // namespace espalier
