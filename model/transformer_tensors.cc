#include "model/transformer_tensors.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"

namespace espalier {
namespace {

// Names are those of LlamaForCausalLM's parameters.
constexpr char kEmbedding[] = "model.embed_tokens.weight";
constexpr char kFinalNorm[] = "model.norm.weight";
constexpr char kHead[] = "lm_head.weight";

std::string LayerName(int layer, std::string_view part) {
  return Concat("model.layers.", layer, ".", part, ".weight");
}

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

absl::StatusOr<TransformerTensor> Find(const Checkpoint& checkpoint,
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
  return TransformerTensor{tensor->data, *dtype, static_cast<int>(shape[0])};
}

absl::StatusOr<TransformerLayerTensors> FindLayer(
    const Checkpoint& checkpoint, const TransformerConfig& config, int i) {
  struct Wanted {
    TransformerTensor TransformerLayerTensors::*member;
    std::string_view name;
    std::vector<int64_t> shape;
  };
  using Layer = TransformerLayerTensors;
  const int hidden = config.hidden_size;
  const int intermediate = config.intermediate_size;
  const int q = config.q_size();
  const int kv = config.kv_size();
  const Wanted all[] = {
      {&Layer::attention_norm, "input_layernorm", {hidden}},
      {&Layer::q, "self_attn.q_proj", {q, hidden}},
      {&Layer::k, "self_attn.k_proj", {kv, hidden}},
      {&Layer::v, "self_attn.v_proj", {kv, hidden}},
      {&Layer::output, "self_attn.o_proj", {hidden, q}},
      {&Layer::mlp_norm, "post_attention_layernorm", {hidden}},
      {&Layer::gate, "mlp.gate_proj", {intermediate, hidden}},
      {&Layer::up, "mlp.up_proj", {intermediate, hidden}},
      {&Layer::down, "mlp.down_proj", {hidden, intermediate}},
  };
  TransformerLayerTensors layer;
  for (const Wanted& wanted : all) {
    ASSIGN_OR_RETURN(layer.*wanted.member,
                     Find(checkpoint, LayerName(i, wanted.name), wanted.shape));
  }
  return layer;
}

}  // namespace

absl::StatusOr<TransformerTensors> FindTransformerTensors(
    const Checkpoint& checkpoint, const TransformerConfig& config) {
  const std::vector<int64_t> table = {config.vocab_size, config.hidden_size};
  TransformerTensors tensors;
  ASSIGN_OR_RETURN(tensors.embedding, Find(checkpoint, kEmbedding, table));
  if (!config.tie_word_embeddings) {
    ASSIGN_OR_RETURN(tensors.head, Find(checkpoint, kHead, table));
  }
  ASSIGN_OR_RETURN(tensors.final_norm,
                   Find(checkpoint, kFinalNorm, {config.hidden_size}));
  for (int i = 0; i < config.num_layers; ++i) {
    ASSIGN_OR_RETURN(TransformerLayerTensors layer,
                     FindLayer(checkpoint, config, i));
    tensors.layers.push_back(layer);
  }
  return tensors;
}

}  // namespace espalier
