#include "model/transformer_weights.h"

#include <cstring>
#include <new>
#include <span>

#include "base/load_as_float.h"
#include "base/status.h"
#include "model/transformer_tensors.h"

namespace espalier {
namespace {

using Tensor = TransformerTensor;

// The rows of a matrix that is stored [num_cols, num_rows].
std::vector<std::byte> Transpose(const Tensor& tensor, int num_cols) {
  const size_t item = NumBytes(tensor.dtype);
  const size_t num_rows = tensor.num_rows;
  std::vector<std::byte> rows(tensor.data.size());
  for (size_t row = 0; row < num_rows; ++row) {
    for (size_t col = 0; col < size_t(num_cols); ++col) {
      std::memcpy(&rows[(row * num_cols + col) * item],
                  &tensor.data[(col * num_rows + row) * item], item);
    }
  }
  return rows;
}

// The tensors, each [num_rows, num_cols], stacked.
PackedMatrix Stack(std::span<const Tensor> tensors, int num_cols) {
  std::vector<std::vector<std::byte>> transposed;
  std::vector<PackedMatrix::Part> parts;
  for (const Tensor& tensor : tensors) {
    std::span<const std::byte> data = tensor.data;
    if (tensor.is_transposed) {
      data = transposed.emplace_back(Transpose(tensor, num_cols));
    }
    parts.push_back({data, tensor.dtype, tensor.num_rows});
  }
  return PackedMatrix::Pack(parts, num_cols);
}

PackedMatrix Pack(const Tensor& tensor, int num_cols) {
  return Stack(std::span(&tensor, 1), num_cols);
}

void AppendWidened(const Tensor& tensor, std::vector<float>* to) {
  for (int i = 0; i < tensor.num_rows; ++i) {
    to->push_back(LoadAsFloat(&tensor.data[size_t(i) * NumBytes(tensor.dtype)],
                              tensor.dtype));
  }
}

std::vector<float> Widen(std::span<const Tensor> tensors) {
  std::vector<float> result;
  for (const Tensor& tensor : tensors) AppendWidened(tensor, &result);
  return result;
}

// Makes the parts of a layer of its tensors.
class LayerPacker {
 public:
  explicit LayerPacker(const TransformerConfig& config) : config_(config) {}

  TransformerLayerWeights Run(const TransformerLayerTensors& layer) const {
    const int hidden = config_.hidden_size;
    return {
        .attention_norm = Norm(layer.attention_norm, layer.attention_norm_bias),
        .qkv = {Stack(layer.qkv, hidden), Widen(layer.qkv_bias)},
        .q_norm = Norm(layer.q_norm),
        .k_norm = Norm(layer.k_norm),
        .output = Product(layer.output, layer.output_bias, config_.q_size()),
        .post_attention_norm = Norm(layer.post_attention_norm),
        .mlp_norm = Norm(layer.mlp_norm, layer.mlp_norm_bias),
        .gate_up = {Stack(layer.gate_up, hidden), Widen(layer.gate_up_bias)},
        .down = Product(layer.down, layer.down_bias, config_.intermediate_size),
        .post_mlp_norm = Norm(layer.post_mlp_norm)};
  }

  NormWeights Norm(const Tensor& weight, const Tensor& bias = {}) const {
    NormWeights norm = {Widen(std::span(&weight, 1)),
                        Widen(std::span(&bias, 1))};
    if (config_.norm_adds_one) {
      for (float& value : norm.weight) value += 1.0f;
    }
    return norm;
  }

 private:
  static ProductWeights Product(const Tensor& matrix, const Tensor& bias,
                                int num_cols) {
    return {Pack(matrix, num_cols), Widen(std::span(&bias, 1))};
  }

  const TransformerConfig& config_;
};

absl::StatusOr<TransformerWeights> Load(const Checkpoint& checkpoint,
                                        const TransformerConfig& config) {
  ASSIGN_OR_RETURN(const TransformerTensors tensors,
                   FindTransformerTensors(checkpoint, config));
  const LayerPacker packer(config);
  TransformerWeights weights;
  weights.embedding = Pack(tensors.embedding, config.hidden_size);
  if (config.positions == PositionKind::kLearned) {
    weights.positions = Pack(tensors.positions, config.hidden_size);
  }
  if (!config.tie_word_embeddings) {
    weights.untied_head = Pack(tensors.head, config.hidden_size);
  }
  weights.final_norm = packer.Norm(tensors.final_norm, tensors.final_norm_bias);
  for (const TransformerLayerTensors& layer : tensors.layers) {
    weights.layers.push_back(packer.Run(layer));
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
