#include "model/transformer_tensors.h"

#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/status.h"

namespace espalier {
namespace {

using Tensor = TransformerTensor;

std::optional<DType> ParseDType(std::string_view dtype) {
  if (dtype == "F32") return DType::kFloat32;
  if (dtype == "BF16") return DType::kBFloat16;
  if (dtype == "F16") return DType::kFloat16;
  return std::nullopt;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += Concat(i > 0 ? ", " : "", shape[i]);
  }
  return text + "]";
}

absl::StatusOr<Tensor> Find(const Checkpoint& checkpoint,
                            const std::string& name,
                            const std::vector<int64_t>& shape) {
  ASSIGN_OR_RETURN(const LocatedTensor located, checkpoint.Find(name));
  const auto& [tensor, path] = located;
  if (tensor->shape != shape) {
    return InvalidArgument(path, ": tensor ", name, " must have shape ",
                           ShapeText(shape), " by config.json, got ",
                           Shown(ShapeText(tensor->shape)));
  }
  const std::optional<DType> dtype = ParseDType(tensor->dtype);
  if (!dtype) {
    return InvalidArgument(path, ": tensor ", name,
                           " must have dtype BF16, F16 or F32, got ",
                           tensor->dtype);
  }
  return Tensor{tensor->data, *dtype, static_cast<int>(shape[0])};
}

// The tensor's first `num_rows` rows, and the rest.
std::pair<Tensor, Tensor> Split(const Tensor& tensor, int num_rows) {
  const size_t row_bytes = tensor.data.size() / tensor.num_rows;
  Tensor first = tensor, second = tensor;
  first.num_rows = num_rows;
  first.data = tensor.data.first(num_rows * row_bytes);
  second.num_rows = tensor.num_rows - num_rows;
  second.data = tensor.data.subspan(num_rows * row_bytes);
  return {first, second};
}

// Finds the tensors of one layer.
class LayerFinder {
 public:
  LayerFinder(const Checkpoint& checkpoint, const TransformerConfig& config,
              std::string prefix)
      : checkpoint_(checkpoint),
        config_(config),
        names_(config.names),
        prefix_(std::move(prefix)) {}

  absl::StatusOr<TransformerLayerTensors> Run() {
    RETURN_IF_ERROR(FindAttention());
    RETURN_IF_ERROR(FindFeedForward());
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

  absl::Status FindFeedForward() {
    const int size = config_.intermediate_size;
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
    return Find(checkpoint_, Concat(prefix_, name, suffix), {size});
  }

  absl::Status Norm(std::string_view name, Tensor* weight, Tensor* bias) const {
    ASSIGN_OR_RETURN(*weight, Vector(name, ".weight", config_.hidden_size));
    if (config_.norm != NormKind::kLayer) return absl::OkStatus();
    ASSIGN_OR_RETURN(*bias, Vector(name, ".bias", config_.hidden_size));
    return absl::OkStatus();
  }

  absl::Status Product(std::string_view name, int num_rows, int num_cols,
                       bool has_bias, Tensor* weight, Tensor* bias) const {
    const std::string whole = Concat(prefix_, name, ".weight");
    if (names_.are_transposed) {
      ASSIGN_OR_RETURN(*weight, Find(checkpoint_, whole, {num_cols, num_rows}));
      weight->num_rows = num_rows;
      weight->is_transposed = true;
    } else {
      ASSIGN_OR_RETURN(*weight, Find(checkpoint_, whole, {num_rows, num_cols}));
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

// A head that is tied to the embedding may be there too, if it is the same.
// transformers uses one that is not, whatever the config says.
absl::Status CheckTiedHead(const Checkpoint& checkpoint,
                           const TensorNames& names, const Tensor& embedding) {
  const std::string name = Concat(names.head, ".weight");
  const auto head = checkpoint.Find(name);
  if (!head.ok()) return absl::OkStatus();
  const std::span<const std::byte> data = head->tensor->data;
  if (data.size() == embedding.data.size() &&
      std::memcmp(data.data(), embedding.data.data(), data.size()) == 0) {
    return absl::OkStatus();
  }
  return InvalidArgument(head->path, ": tensor ", name, " is not ",
                         names.embedding, ".weight, and config.json has ",
                         "tie_word_embeddings true");
}

// What transformers writes beside weights: masks, and rotary tables that it
// makes of the config.
bool IsNoWeight(std::string_view name) {
  for (const std::string_view end :
       {".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias"}) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

// A tensor that nothing reads is of another model than config.json describes:
// of further layers, or biases that it does not speak of.
absl::Status CheckAllAreUsed(const Checkpoint& checkpoint,
                             const TransformerConfig& config,
                             const TransformerTensors& tensors) {
  std::set<const std::byte*> used;
  for (const Tensor& tensor : AllTensors(tensors)) {
    used.insert(tensor.data.data());
  }
  const std::string head = Concat(config.names.head, ".weight");
  for (const std::string_view name : checkpoint.names()) {
    ASSIGN_OR_RETURN(const LocatedTensor located,
                     checkpoint.Find(std::string(name)));
    const bool is_known = used.contains(located.tensor->data.data()) ||
                          located.tensor->data.empty() || name == head ||
                          IsNoWeight(name);
    if (is_known) continue;
    return InvalidArgument(located.path, ": tensor ", Shown(name),
                           " is no part of a ", config.family, " model of ",
                           "num_hidden_layers ", config.num_layers,
                           ", as config.json describes it");
  }
  return absl::OkStatus();
}

// What all names but the head's begin with in this checkpoint.
std::string_view BaseOf(const Checkpoint& checkpoint,
                        const TensorNames& names) {
  const bool is_bare =
      !checkpoint.Find(Concat(names.base, names.embedding, ".weight")).ok() &&
      checkpoint.Find(Concat(names.embedding, ".weight")).ok();
  return is_bare ? "" : names.base;
}

}  // namespace

absl::StatusOr<TransformerTensors> FindTransformerTensors(
    const Checkpoint& checkpoint, const TransformerConfig& config) {
  const TensorNames& names = config.names;
  const int hidden = config.hidden_size;
  const std::vector<int64_t> table = {config.vocab_size, hidden};
  const std::string base(BaseOf(checkpoint, names));
  const auto find = [&](std::string_view name, std::string_view suffix,
                        const std::vector<int64_t>& shape) {
    return Find(checkpoint, Concat(base, name, suffix), shape);
  };
  TransformerTensors tensors;
  ASSIGN_OR_RETURN(tensors.embedding, find(names.embedding, ".weight", table));
  if (config.positions == PositionKind::kLearned) {
    ASSIGN_OR_RETURN(tensors.positions, find(names.positions, ".weight",
                                             {config.max_context, hidden}));
  }
  if (config.tie_word_embeddings) {
    RETURN_IF_ERROR(CheckTiedHead(checkpoint, names, tensors.embedding));
  } else {
    ASSIGN_OR_RETURN(tensors.head,
                     Find(checkpoint, Concat(names.head, ".weight"), table));
  }
  ASSIGN_OR_RETURN(tensors.final_norm,
                   find(names.final_norm, ".weight", {hidden}));
  if (config.norm == NormKind::kLayer) {
    ASSIGN_OR_RETURN(tensors.final_norm_bias,
                     find(names.final_norm, ".bias", {hidden}));
  }
  for (int i = 0; i < config.num_layers; ++i) {
    LayerFinder finder(checkpoint, config, Concat(base, names.layers, i, "."));
    ASSIGN_OR_RETURN(TransformerLayerTensors layer, finder.Run());
    tensors.layers.push_back(std::move(layer));
  }
  RETURN_IF_ERROR(CheckAllAreUsed(checkpoint, config, tensors));
  return tensors;
}

std::vector<TransformerTensor> AllTensors(const TransformerTensors& tensors) {
  std::vector<TransformerTensor> all = {tensors.embedding, tensors.positions,
                                        tensors.head, tensors.final_norm,
                                        tensors.final_norm_bias};
  for (const TransformerLayerTensors& layer : tensors.layers) {
    for (const auto& stack :
         {layer.qkv, layer.qkv_bias, layer.gate_up, layer.gate_up_bias}) {
      all.insert(all.end(), stack.begin(), stack.end());
    }
    all.insert(all.end(),
               {layer.attention_norm, layer.attention_norm_bias, layer.q_norm,
                layer.k_norm, layer.output, layer.output_bias,
                layer.post_attention_norm, layer.mlp_norm, layer.mlp_norm_bias,
                layer.down, layer.down_bias, layer.post_mlp_norm});
  }
  std::erase_if(all, [](const Tensor& tensor) { return tensor.data.empty(); });
  return all;
}

}  // namespace espalier
