#include "model/find_layer_tensors.h"

#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "model/find_tensor.h"

namespace espalier {
namespace {

using Tensor = TransformerTensor;

// The tensor's first `num_rows` rows, and the rest.
std::pair<Tensor, Tensor> Split(const Tensor& tensor, int num_rows) {
  const size_t row_bytes = tensor.data.size() / tensor.num_rows;
  Tensor first = tensor, second = tensor;
  first.num_rows = num_rows;
  first.data = tensor.data.first(num_rows * row_bytes);
  second.num_rows = tensor.num_rows - num_rows;
  second.data = tensor.data.subspan(num_rows * row_bytes);
  const Fp8Scales& scales = tensor.fp8_scales;
  const size_t scale_bytes = NumBytes(scales.dtype);
  if (scales.data.size() > scale_bytes) {  // one a row
    first.fp8_scales.data = scales.data.first(num_rows * scale_bytes);
    second.fp8_scales.data = scales.data.subspan(num_rows * scale_bytes);
  }
  return {first, second};
}

// Finds the tensors of one layer.
class LayerFinder {
 public:
  LayerFinder(const Checkpoint& checkpoint, const TransformerConfig& config,
              const TensorNames& names, std::string prefix)
      : checkpoint_(checkpoint),
        config_(config),
        names_(names),
        prefix_(std::move(prefix)) {}

  absl::StatusOr<TransformerLayerTensors> Run(int intermediate_size) {
    RETURN_IF_ERROR(FindAttention());
    if (!names_.cross_q.empty()) RETURN_IF_ERROR(FindCrossAttention());
    RETURN_IF_ERROR(FindFeedForward(intermediate_size));
    return std::move(layer_);
  }

 private:
  absl::Status FindAttention() {
    const int q = config_.q_size(), kv = config_.kv_size();
    const int hidden = config_.hidden_size;
    RETURN_IF_ERROR(Norm(names_.attention_norm, &layer_.attention_norm,
                         &layer_.attention_norm_bias));
    if (!names_.qkv.empty()) {
      RETURN_IF_ERROR(Stacked(names_.qkv, q + 2 * kv, hidden,
                              config_.has_qkv_bias, &layer_.qkv,
                              &layer_.qkv_bias));
    } else {
      for (const auto& [name, rows] :
           {std::pair(names_.q, q), std::pair(names_.k, kv),
            std::pair(names_.v, kv)}) {
        RETURN_IF_ERROR(Stacked(name, rows, hidden, config_.has_qkv_bias,
                                &layer_.qkv, &layer_.qkv_bias));
      }
    }
    if (config_.has_qk_norms) {
      ASSIGN_OR_RETURN(layer_.q_norm,
                       Vector(names_.q_norm, ".weight", config_.head_dim));
      ASSIGN_OR_RETURN(layer_.k_norm,
                       Vector(names_.k_norm, ".weight", config_.head_dim));
    }
    RETURN_IF_ERROR(Product(names_.output, hidden, q, config_.has_output_bias,
                            &layer_.output, &layer_.output_bias));
    if (!config_.has_post_norms) return absl::OkStatus();
    return Norm(names_.post_attention_norm, &layer_.post_attention_norm,
                nullptr);
  }

  absl::Status FindCrossAttention() {
    const int q = config_.q_size(), kv = config_.kv_size();
    const int hidden = config_.hidden_size;
    const bool bias = config_.has_qkv_bias;
    RETURN_IF_ERROR(
        Norm(names_.cross_norm, &layer_.cross_norm, &layer_.cross_norm_bias));
    RETURN_IF_ERROR(Product(names_.cross_q, q, hidden, bias, &layer_.cross_q,
                            &layer_.cross_q_bias));
    for (const std::string_view name : {names_.cross_k, names_.cross_v}) {
      RETURN_IF_ERROR(Stacked(name, kv, hidden, bias, &layer_.cross_kv,
                              &layer_.cross_kv_bias));
    }
    return Product(names_.cross_output, hidden, q, config_.has_output_bias,
                   &layer_.cross_output, &layer_.cross_output_bias);
  }

  absl::Status FindFeedForward(int size) {
    const int hidden = config_.hidden_size;
    const bool bias = config_.has_mlp_bias;
    RETURN_IF_ERROR(
        Norm(names_.mlp_norm, &layer_.mlp_norm, &layer_.mlp_norm_bias));
    if (!names_.gate_up.empty()) {
      RETURN_IF_ERROR(Stacked(names_.gate_up, 2 * size, hidden, bias,
                              &layer_.gate_up, &layer_.gate_up_bias));
      const auto [gate, up] = Split(layer_.gate_up[0], size);
      layer_.gate_up = {gate, up};
    } else {
      if (config_.has_gate) {
        RETURN_IF_ERROR(Stacked(names_.gate, size, hidden, bias,
                                &layer_.gate_up, &layer_.gate_up_bias));
      }
      RETURN_IF_ERROR(Stacked(names_.up, size, hidden, bias, &layer_.gate_up,
                              &layer_.gate_up_bias));
    }
    RETURN_IF_ERROR(Product(names_.down, hidden, size, bias, &layer_.down,
                            &layer_.down_bias));
    if (!config_.has_post_norms) return absl::OkStatus();
    return Norm(names_.post_mlp_norm, &layer_.post_mlp_norm, nullptr);
  }

  absl::StatusOr<Tensor> Vector(std::string_view name, std::string_view suffix,
                                int size) const {
    return FindTensor(checkpoint_, Concat(prefix_, name, suffix), {size});
  }

  absl::Status Norm(std::string_view name, Tensor* weight, Tensor* bias) const {
    ASSIGN_OR_RETURN(*weight, Vector(name, ".weight", config_.hidden_size));
    // Norms after a part, which have no bias, are those of RMSNorm families.
    CHECK(config_.norm != NormKind::kLayer || bias != nullptr) << name;
    if (config_.norm != NormKind::kLayer) return absl::OkStatus();
    ASSIGN_OR_RETURN(*bias, Vector(name, ".bias", config_.hidden_size));
    return absl::OkStatus();
  }

  absl::Status Product(std::string_view name, int num_rows, int num_cols,
                       bool has_bias, Tensor* weight, Tensor* bias) const {
    const std::string whole = Concat(prefix_, name, ".weight");
    if (names_.are_transposed) {
      ASSIGN_OR_RETURN(*weight,
                       FindTensor(checkpoint_, whole, {num_cols, num_rows}));
      weight->num_rows = num_rows;
      weight->is_transposed = true;
    } else {
      ASSIGN_OR_RETURN(
          *weight, FindMatrix(checkpoint_, config_, whole, num_rows, num_cols));
    }
    if (!has_bias) return absl::OkStatus();
    ASSIGN_OR_RETURN(*bias, Vector(name, ".bias", num_rows));
    return absl::OkStatus();
  }

  absl::Status Stacked(std::string_view name, int num_rows, int num_cols,
                       bool has_bias, std::vector<Tensor>* weights,
                       std::vector<Tensor>* biases) const {
    Tensor weight, bias;
    RETURN_IF_ERROR(
        Product(name, num_rows, num_cols, has_bias, &weight, &bias));
    weights->push_back(weight);
    if (has_bias) biases->push_back(bias);
    return absl::OkStatus();
  }

  const Checkpoint& checkpoint_;
  const TransformerConfig& config_;
  const TensorNames& names_;
  const std::string prefix_;
  TransformerLayerTensors layer_;
};

}  // namespace

absl::StatusOr<TransformerLayerTensors> FindLayerTensors(
    const Checkpoint& checkpoint, const TransformerConfig& config,
    const TensorNames& names, const std::string& prefix,
    int intermediate_size) {
  return LayerFinder(checkpoint, config, names, prefix).Run(intermediate_size);
}

}  // namespace espalier
