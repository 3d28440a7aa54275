#include "model/llama_weights.h"

#include <initializer_list>
#include <new>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"

namespace espalier {
namespace {

// A tensor that should be there.
struct TensorSpec {
  std::string name;
  int num_rows = 0;
};

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

class Loader {
 public:
  Loader(const Checkpoint& checkpoint, const LlamaConfig& config)
      : checkpoint_(checkpoint), config_(config) {}

  absl::StatusOr<LlamaWeights> Load() const {
    LlamaWeights weights;
    const TensorSpec embedding = {kEmbedding, config_.vocab_size};
    ASSIGN_OR_RETURN(weights.embedding,
                     LoadMatrix({embedding}, config_.hidden_size));
    if (!config_.tie_word_embeddings) {
      const TensorSpec head = {kHead, config_.vocab_size};
      ASSIGN_OR_RETURN(weights.untied_head,
                       LoadMatrix({head}, config_.hidden_size));
    }
    ASSIGN_OR_RETURN(weights.final_norm, LoadNorm(kFinalNorm));
    for (int i = 0; i < config_.num_layers; ++i) {
      ASSIGN_OR_RETURN(LlamaLayerWeights layer, LoadLayer(i));
      weights.layers.push_back(std::move(layer));
    }
    return weights;
  }

 private:
  absl::StatusOr<LlamaLayerWeights> LoadLayer(int i) const {
    LlamaLayerWeights layer;
    ASSIGN_OR_RETURN(layer.attention_norm,
                     LoadNorm(LayerName(i, "input_layernorm")));
    ASSIGN_OR_RETURN(
        layer.qkv,
        LoadMatrix({{LayerName(i, "self_attn.q_proj"), config_.q_size()},
                    {LayerName(i, "self_attn.k_proj"), config_.kv_size()},
                    {LayerName(i, "self_attn.v_proj"), config_.kv_size()}},
                   config_.hidden_size));
    ASSIGN_OR_RETURN(
        layer.output,
        LoadMatrix({{LayerName(i, "self_attn.o_proj"), config_.hidden_size}},
                   config_.q_size()));
    ASSIGN_OR_RETURN(layer.mlp_norm,
                     LoadNorm(LayerName(i, "post_attention_layernorm")));
    ASSIGN_OR_RETURN(
        layer.gate_up,
        LoadMatrix({{LayerName(i, "mlp.gate_proj"), config_.intermediate_size},
                    {LayerName(i, "mlp.up_proj"), config_.intermediate_size}},
                   config_.hidden_size));
    ASSIGN_OR_RETURN(
        layer.down,
        LoadMatrix({{LayerName(i, "mlp.down_proj"), config_.hidden_size}},
                   config_.intermediate_size));
    return layer;
  }

  // The tensors, each [num_rows, num_cols], stacked.
  absl::StatusOr<PackedMatrix> LoadMatrix(
      std::initializer_list<TensorSpec> specs, int num_cols) const {
    std::vector<PackedMatrix::Part> parts;
    for (const TensorSpec& spec : specs) {
      ASSIGN_OR_RETURN(const PackedMatrix::Part part,
                       FindPart(spec.name, {spec.num_rows, num_cols}));
      parts.push_back(part);
    }
    return PackedMatrix::Pack(parts, num_cols);
  }

  absl::StatusOr<std::vector<float>> LoadNorm(const std::string& name) const {
    ASSIGN_OR_RETURN(const PackedMatrix::Part part,
                     FindPart(name, {config_.hidden_size}));
    std::vector<float> norm;
    norm.reserve(config_.hidden_size);
    for (int i = 0; i < config_.hidden_size; ++i) {
      norm.push_back(LoadAsFloat(&part.data[size_t(i) * NumBytes(part.dtype)],
                                 part.dtype));
    }
    return norm;
  }

  absl::StatusOr<PackedMatrix::Part> FindPart(
      const std::string& name, const std::vector<int64_t>& shape) const {
    ASSIGN_OR_RETURN(const LocatedTensor located, checkpoint_.Find(name));
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
    return PackedMatrix::Part{tensor->data, *dtype, static_cast<int>(shape[0])};
  }

  const Checkpoint& checkpoint_;
  const LlamaConfig& config_;
};

}  // namespace

absl::StatusOr<LlamaWeights> LoadLlamaWeights(const Checkpoint& checkpoint,
                                              const LlamaConfig& config) {
  try {
    return Loader(checkpoint, config).Load();
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(checkpoint.path(),
                             ": not enough memory for the weights");
  }
}

}  // namespace espalier
