// GPT-2: learned positions, LayerNorm, biases everywhere, a feed-forward part
// without a gate, matrices stored transposed.
#include "base/status.h"
#include "model/config_fields.h"
#include "model/family_fields.h"
#include "model/model_family.h"

namespace espalier {
namespace {

constexpr TensorNames kGpt2Names = {.base = "transformer.",
                                    .embedding = "wte",
                                    .positions = "wpe",
                                    .final_norm = "ln_f",
                                    .layers = "h.",
                                    .attention_norm = "ln_1",
                                    .qkv = "attn.c_attn",
                                    .output = "attn.c_proj",
                                    .mlp_norm = "ln_2",
                                    .up = "mlp.c_fc",
                                    .down = "mlp.c_proj",
                                    .are_transposed = true};

absl::Status ReadGpt2Sizes(const json::object& json,
                           TransformerConfig* config) {
  ASSIGN_OR_RETURN(config->vocab_size,
                   ReadInt(json, "vocab_size", 1, kMaxVocabulary));
  ASSIGN_OR_RETURN(config->hidden_size,
                   ReadAliasedInt(json, "n_embd", "hidden_size", 1, kMaxWidth));
  ASSIGN_OR_RETURN(
      const int num_layers,
      ReadAliasedInt(json, "n_layer", "num_hidden_layers", 1, kMaxLayers));
  ASSIGN_OR_RETURN(config->max_context,
                   ReadAliasedInt(json, "n_positions",
                                  "max_position_embeddings", 1, kMaxContext));
  ASSIGN_OR_RETURN(
      config->num_heads,
      ReadAliasedInt(json, "n_head", "num_attention_heads", 1, kMaxHeads));
  ASSIGN_OR_RETURN(
      const int intermediate_size,
      ReadInt(json, "n_inner", 1, kMaxWidth, 4 * config->hidden_size));
  config->layers.assign(num_layers, {.intermediate_size = intermediate_size});
  return SetHeadDim(config, "n_embd", "n_head");
}

absl::Status ReadGpt2(const json::object& json, TransformerConfig* config) {
  RETURN_IF_ERROR(ReadGpt2Sizes(json, config));
  config->names = kGpt2Names;
  ASSIGN_OR_RETURN(
      config->activation,
      ReadAnyActivation(json, "activation_function", Activation::kGeluTanh));
  config->positions = PositionKind::kLearned;
  config->norm = NormKind::kLayer;
  config->has_qkv_bias = true;
  config->has_output_bias = true;
  config->has_mlp_bias = true;
  config->has_gate = false;
  ASSIGN_OR_RETURN(const bool by_layer,
                   ReadBool(json, "scale_attn_by_inverse_layer_idx", false));
  if (by_layer) {
    return InvalidArgument(
        "scale_attn_by_inverse_layer_idx true is not supported");
  }
  ASSIGN_OR_RETURN(const bool scales_scores,
                   ReadBool(json, "scale_attn_weights", true));
  if (!scales_scores) config->query_pre_attn_scalar = 1;
  ASSIGN_OR_RETURN(config->norm_eps,
                   ReadNumber(json, "layer_norm_epsilon", 0, 1, 1e-5));
  ASSIGN_OR_RETURN(config->tie_word_embeddings,
                   ReadBool(json, "tie_word_embeddings", true));
  return absl::OkStatus();
}

}  // namespace

constexpr ModelFamily kGpt2Family = {.model_type = "gpt2",
                                     .name = "GPT-2",
                                     .architecture = "GPT2LMHeadModel",
                                     .read = ReadGpt2};

}  // namespace espalier
