#include "model/transformer_weights.h"

#include <initializer_list>
#include <new>

#include "base/load_as_float.h"
#include "base/status.h"
#include "model/transformer_tensors.h"

namespace espalier {
namespace {

// The tensors, each [num_rows, num_cols], stacked.
PackedMatrix Stack(std::initializer_list<TransformerTensor> parts,
                   int num_cols) {
  return PackedMatrix::Pack({parts.begin(), parts.size()}, num_cols);
}

std::vector<float> Widen(const TransformerTensor& norm) {
  std::vector<float> result;
  result.reserve(norm.num_rows);
  for (int i = 0; i < norm.num_rows; ++i) {
    result.push_back(
        LoadAsFloat(&norm.data[size_t(i) * NumBytes(norm.dtype)], norm.dtype));
  }
  return result;
}

TransformerLayerWeights PackLayer(const TransformerLayerTensors& layer,
                                  const TransformerConfig& config) {
  const int hidden_size = config.hidden_size;
  return {.attention_norm = Widen(layer.attention_norm),
          .qkv = Stack({layer.q, layer.k, layer.v}, hidden_size),
          .output = Stack({layer.output}, config.q_size()),
          .mlp_norm = Widen(layer.mlp_norm),
          .gate_up = Stack({layer.gate, layer.up}, hidden_size),
          .down = Stack({layer.down}, config.intermediate_size)};
}

absl::StatusOr<TransformerWeights> Load(const Checkpoint& checkpoint,
                                        const TransformerConfig& config) {
  ASSIGN_OR_RETURN(const TransformerTensors tensors,
                   FindTransformerTensors(checkpoint, config));
  TransformerWeights weights;
  weights.embedding = Stack({tensors.embedding}, config.hidden_size);
  if (!config.tie_word_embeddings) {
    weights.untied_head = Stack({tensors.head}, config.hidden_size);
  }
  weights.final_norm = Widen(tensors.final_norm);
  for (const TransformerLayerTensors& layer : tensors.layers) {
    weights.layers.push_back(PackLayer(layer, config));
  }
  return weights;
}

}  // namespace

absl::StatusOr<TransformerWeights> LoadTransformerWeights(
    const Checkpoint& checkpoint, const TransformerConfig& config) {
  try {
    return Load(checkpoint, config);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(checkpoint.path(),
                             ": not enough memory for the weights");
  }
}

}  // namespace espalier
