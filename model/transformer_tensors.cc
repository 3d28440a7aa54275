#include "model/transformer_tensors.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/status.h"
#include "model/fp8_rows.h"
#include "model/positions.h"

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

absl::Status CheckShape(const LocatedTensor& located, const std::string& name,
                        const std::vector<int64_t>& shape) {
  if (located.tensor->shape == shape) return absl::OkStatus();
  return InvalidArgument(located.path, ": tensor ", name, " must have shape ",
                         ShapeText(shape), " by config.json, got ",
                         Shown(ShapeText(located.tensor->shape)));
}

absl::Status WrongDType(const LocatedTensor& located, const std::string& name,
                        std::string_view allowed) {
  return InvalidArgument(located.path, ": tensor ", name, " must have dtype ",
                         allowed, ", got ", located.tensor->dtype);
}

absl::StatusOr<Tensor> Find(const Checkpoint& checkpoint,
                            const std::string& name,
                            const std::vector<int64_t>& shape) {
  ASSIGN_OR_RETURN(const LocatedTensor located, checkpoint.Find(name));
  RETURN_IF_ERROR(CheckShape(located, name, shape));
  const std::optional<DType> dtype = ParseDType(located.tensor->dtype);
  if (!dtype) return WrongDType(located, name, "BF16, F16 or F32");
  return Tensor{.data = located.tensor->data,
                .dtype = *dtype,
                .num_rows = static_cast<int>(shape[0]),
                .name = name};
}

// Of a matrix of codes, one a row or one for all.
absl::StatusOr<Fp8Scales> FindScales(const Checkpoint& checkpoint,
                                     const std::string& name, int num_rows) {
  ASSIGN_OR_RETURN(const LocatedTensor located, checkpoint.Find(name));
  const std::vector<int64_t>& shape = located.tensor->shape;
  using Shape = std::vector<int64_t>;
  if (shape != Shape{} && shape != Shape{1} && shape != Shape{num_rows} &&
      shape != Shape{num_rows, 1}) {
    return InvalidArgument(located.path, ": tensor ", name,
                           " must have shape [], [1], [", num_rows, "] or [",
                           num_rows, ", 1], got ", Shown(ShapeText(shape)));
  }
  const std::optional<DType> dtype = ParseDType(located.tensor->dtype);
  if (!dtype) return WrongDType(located, name, "BF16, F16 or F32");
  const Fp8Scales scales = {located.tensor->data, *dtype};
  RETURN_IF_ERROR(Annotate(CheckFp8Scales(scales),
                           Concat(located.path, ": tensor ", name)));
  return scales;
}

// A matrix, `name` being that of its weight; of codes, if config.json says that
// there are some.
absl::StatusOr<Tensor> FindMatrix(const Checkpoint& checkpoint,
                                  const TransformerConfig& config,
                                  const std::string& name, int num_rows,
                                  int num_cols) {
  ASSIGN_OR_RETURN(const LocatedTensor located, checkpoint.Find(name));
  if (!config.has_fp8_weights || located.tensor->dtype != "F8_E4M3") {
    return Find(checkpoint, name, {num_rows, num_cols});
  }
  RETURN_IF_ERROR(CheckShape(located, name, {num_rows, num_cols}));
  Tensor tensor = {.data = located.tensor->data,
                   .dtype = DType::kBFloat16,
                   .num_rows = num_rows,
                   .name = name};
  ASSIGN_OR_RETURN(tensor.fp8_scales,
                   FindScales(checkpoint, name + "_scale", num_rows));
  return tensor;
}

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

// A tensor that is tied to the embedding may be there too, if it is the same.
// transformers uses one that is not, whatever the config says.
absl::Status CheckTied(const Checkpoint& checkpoint, const TensorNames& names,
                       const std::string& name, const Tensor& embedding) {
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

// What transformers writes beside weights, or did: masks, tables that it makes
// of the config, and biases of T5's cross-attention, which has no use for them.
bool IsNoWeight(std::string_view name, const TransformerConfig& config) {
  if (config.positions == PositionKind::kSinusoidal &&
      name.ends_with(".embed_positions.weight")) {
    return true;
  }
  if (config.positions == PositionKind::kDistances &&
      name.ends_with("EncDecAttention.relative_attention_bias.weight")) {
    return true;
  }
  for (const std::string_view end :
       {".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias"}) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

void AppendLayer(const TransformerLayerTensors& layer,
                 std::vector<Tensor>* all) {
  for (const auto& stack :
       {layer.qkv, layer.qkv_bias, layer.cross_kv, layer.cross_kv_bias,
        layer.gate_up, layer.gate_up_bias}) {
    all->insert(all->end(), stack.begin(), stack.end());
  }
  all->insert(
      all->end(),
      {layer.attention_norm, layer.attention_norm_bias, layer.q_norm,
       layer.k_norm, layer.output, layer.output_bias, layer.post_attention_norm,
       layer.cross_norm, layer.cross_norm_bias, layer.cross_q,
       layer.cross_q_bias, layer.cross_output, layer.cross_output_bias,
       layer.mlp_norm, layer.mlp_norm_bias, layer.down, layer.down_bias,
       layer.post_mlp_norm});
}

void AppendStack(const TransformerStackTensors& stack,
                 std::vector<Tensor>* all) {
  all->insert(all->end(),
              {stack.positions, stack.embedding_norm, stack.embedding_norm_bias,
               stack.distance_biases, stack.final_norm, stack.final_norm_bias});
  for (const TransformerLayerTensors& layer : stack.layers) {
    AppendLayer(layer, all);
  }
}

// A tensor that nothing reads is of another model than config.json describes:
// of further layers, or biases that it does not speak of.
absl::Status CheckAllAreUsed(const Checkpoint& checkpoint,
                             const TransformerConfig& config,
                             const TransformerTensors& tensors) {
  std::set<const std::byte*> used;
  for (const Tensor& tensor : AllTensors(tensors)) {
    used.insert(tensor.data.data());
    used.insert(tensor.fp8_scales.data.data());  // null, if there are none
  }
  const std::string head = Concat(config.names.head, ".weight");
  const auto is_alias = [&](std::string_view name) {
    return std::ranges::any_of(
        config.names.embedding_aliases, [&](std::string_view alias) {
          return name == Concat(config.names.base, alias, ".weight");
        });
  };
  for (const std::string_view name : checkpoint.names()) {
    ASSIGN_OR_RETURN(const LocatedTensor located,
                     checkpoint.Find(std::string(name)));
    const bool is_known = used.contains(located.tensor->data.data()) ||
                          located.tensor->data.empty() || name == head ||
                          is_alias(name) || IsNoWeight(name, config);
    if (is_known) continue;
    return InvalidArgument(located.path, ": tensor ", Shown(name),
                           " is no part of a ", config.family, " model of ",
                           "num_hidden_layers ", config.num_layers,
                           ", as config.json describes it");
  }
  return absl::OkStatus();
}

// That of the embedding, or of a tensor that it is tied to and that is there in
// its place.
std::string EmbeddingName(const Checkpoint& checkpoint,
                          const TensorNames& names, const std::string& base) {
  const std::string name = Concat(base, names.embedding, ".weight");
  if (checkpoint.Find(name).ok()) return name;
  for (const std::string_view alias : names.embedding_aliases) {
    const std::string other = Concat(base, alias, ".weight");
    if (checkpoint.Find(other).ok()) return other;
  }
  return name;
}

// Finds the tensors of an encoder or a decoder.
class StackFinder {
 public:
  StackFinder(const Checkpoint& checkpoint, const TransformerConfig& config,
              std::string base)
      : checkpoint_(checkpoint), config_(config), base_(std::move(base)) {}

  absl::Status Run(const TensorNames& names, int num_positions, int num_layers,
                   int intermediate_size, TransformerStackTensors* stack) {
    const int hidden = config_.hidden_size;
    if (config_.positions == PositionKind::kLearned) {
      const int num_rows = config_.position_offset + num_positions;
      ASSIGN_OR_RETURN(stack->positions,
                       Weight(names.positions, {num_rows, hidden}));
    }
    if (config_.positions == PositionKind::kSinusoidal) {
      RETURN_IF_ERROR(CheckStoredPositions(names.positions));
    }
    if (config_.positions == PositionKind::kDistances) {
      ASSIGN_OR_RETURN(
          stack->distance_biases,
          Weight(names.distance_biases,
                 {config_.num_distance_buckets, config_.num_heads}));
    }
    if (config_.has_embedding_norm) {
      RETURN_IF_ERROR(Norm(names.embedding_norm, &stack->embedding_norm,
                           &stack->embedding_norm_bias));
    }
    if (!config_.norms_sums) {
      RETURN_IF_ERROR(
          Norm(names.final_norm, &stack->final_norm, &stack->final_norm_bias));
    }
    for (int i = 0; i < num_layers; ++i) {
      LayerFinder finder(checkpoint_, config_, names,
                         Concat(base_, names.layers, i, "."));
      ASSIGN_OR_RETURN(TransformerLayerTensors layer,
                       finder.Run(intermediate_size));
      stack->layers.push_back(std::move(layer));
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<Tensor> Weight(std::string_view name,
                                const std::vector<int64_t>& shape) const {
    return Find(checkpoint_, Concat(base_, name, ".weight"), shape);
  }

  // Positions that are computed may be stored, too.
  absl::Status CheckStoredPositions(std::string_view name) const {
    const std::string full_name = Concat(base_, name, ".weight");
    const auto located = checkpoint_.Find(full_name);
    if (!located.ok()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const Tensor tensor,
                     Weight(name, {config_.max_context, config_.hidden_size}));
    return Annotate(
        CheckSinusoidalPositions(tensor.data, tensor.dtype, config_.max_context,
                                 config_.hidden_size),
        Concat(located->path, ": tensor ", full_name));
  }

  absl::Status Norm(std::string_view name, Tensor* weight, Tensor* bias) const {
    ASSIGN_OR_RETURN(*weight, Weight(name, {config_.hidden_size}));
    if (config_.norm != NormKind::kLayer) return absl::OkStatus();
    ASSIGN_OR_RETURN(*bias, Find(checkpoint_, Concat(base_, name, ".bias"),
                                 {config_.hidden_size}));
    return absl::OkStatus();
  }

  const Checkpoint& checkpoint_;
  const TransformerConfig& config_;
  const std::string base_;
};

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
  const std::vector<int64_t> table = {config.vocab_size, config.hidden_size};
  const std::string base(BaseOf(checkpoint, names));
  TransformerTensors tensors;
  const std::string embedding = EmbeddingName(checkpoint, names, base);
  ASSIGN_OR_RETURN(tensors.embedding, Find(checkpoint, embedding, table));
  for (const std::string_view alias : names.embedding_aliases) {
    RETURN_IF_ERROR(CheckTied(checkpoint, names, Concat(base, alias, ".weight"),
                              tensors.embedding));
  }
  const std::string head = Concat(names.head, ".weight");
  const bool lacks_head = config.may_lack_head && !checkpoint.Find(head).ok();
  if (config.tie_word_embeddings) {
    RETURN_IF_ERROR(CheckTied(checkpoint, names, head, tensors.embedding));
  } else if (!lacks_head) {
    ASSIGN_OR_RETURN(tensors.head,
                     FindMatrix(checkpoint, config, head, config.vocab_size,
                                config.hidden_size));
  }
  if (config.has_logits_bias) {
    ASSIGN_OR_RETURN(tensors.logits_bias,
                     Find(checkpoint, std::string(names.logits_bias),
                          {1, config.vocab_size}));
  }
  StackFinder finder(checkpoint, config, base);
  RETURN_IF_ERROR(finder.Run(names, config.max_context, config.num_layers,
                             config.intermediate_size, &tensors));
  if (config.encoder) {
    const EncoderConfig& encoder = *config.encoder;
    RETURN_IF_ERROR(finder.Run(encoder.names, encoder.max_tokens,
                               encoder.num_layers, encoder.intermediate_size,
                               &tensors.encoder));
  }
  RETURN_IF_ERROR(CheckAllAreUsed(checkpoint, config, tensors));
  return tensors;
}

std::vector<TransformerTensor> AllTensors(const TransformerTensors& tensors) {
  std::vector<TransformerTensor> all = {tensors.embedding, tensors.head,
                                        tensors.logits_bias};
  AppendStack(tensors, &all);
  AppendStack(tensors.encoder, &all);
  std::erase_if(all, [](const Tensor& tensor) { return tensor.data.empty(); });
  return all;
}

}  // namespace espalier
