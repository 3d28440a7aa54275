#include "model/llama_weights.h"

#include <initializer_list>
#include <new>

#include "base/load_as_float.h"
#include "base/status.h"
#include "model/llama_tensors.h"

namespace espalier {
namespace {

// The tensors, each [num_rows, num_cols], stacked.
PackedMatrix Stack(std::initializer_list<LlamaTensor> parts, int num_cols) {
  return PackedMatrix::Pack({parts.begin(), parts.size()}, num_cols);
}

std::vector<float> Widen(const LlamaTensor& norm) {
  std::vector<float> result;
  result.reserve(norm.num_rows);
  for (int i = 0; i < norm.num_rows; ++i) {
    result.push_back(
        LoadAsFloat(&norm.data[size_t(i) * NumBytes(norm.dtype)], norm.dtype));
  }
  return result;
}

LlamaLayerWeights PackLayer(const LlamaLayerTensors& layer,
                            const LlamaConfig& config) {
  const int hidden_size = config.hidden_size;
  return {.attention_norm = Widen(layer.attention_norm),
          .qkv = Stack({layer.q, layer.k, layer.v}, hidden_size),
          .output = Stack({layer.output}, config.q_size()),
          .mlp_norm = Widen(layer.mlp_norm),
          .gate_up = Stack({layer.gate, layer.up}, hidden_size),
          .down = Stack({layer.down}, config.intermediate_size)};
}

absl::StatusOr<LlamaWeights> Load(const Checkpoint& checkpoint,
                                  const LlamaConfig& config) {
  ASSIGN_OR_RETURN(const LlamaTensors tensors,
                   FindLlamaTensors(checkpoint, config));
  LlamaWeights weights;
  weights.embedding = Stack({tensors.embedding}, config.hidden_size);
  if (!config.tie_word_embeddings) {
    weights.untied_head = Stack({tensors.head}, config.hidden_size);
  }
  weights.final_norm = Widen(tensors.final_norm);
  for (const LlamaLayerTensors& layer : tensors.layers) {
    weights.layers.push_back(PackLayer(layer, config));
  }
  return weights;
}

}  // namespace

absl::StatusOr<LlamaWeights> LoadLlamaWeights(const Checkpoint& checkpoint,
                                              const LlamaConfig& config) {
  try {
    return Load(checkpoint, config);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(checkpoint.path(),
                             ": not enough memory for the weights");
  }
}

}  // namespace espalier
