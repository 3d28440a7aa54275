// OPT: learned positions, two rows later than one would think, LayerNorm and
// biases everywhere, a feed-forward part without a gate. The one of 350 million
// parameters has norms after sums, and embeddings of another size.
#include "base/status.h"
#include "model/config_fields.h"
#include "model/family_fields.h"
#include "model/model_family.h"

namespace espalier {
namespace {

constexpr TensorNames kOptNames = {.embedding = "decoder.embed_tokens",
                                   .project_in = "decoder.project_in",
                                   .project_out = "decoder.project_out",
                                   .positions = "decoder.embed_positions",
                                   .final_norm = "decoder.final_layer_norm",
                                   .layers = "decoder.layers.",
                                   .attention_norm = "self_attn_layer_norm",
                                   .output = "self_attn.out_proj",
                                   .mlp_norm = "final_layer_norm",
                                   .up = "fc1",
                                   .down = "fc2"};

absl::Status ReadOptSizes(const json::object& json, TransformerConfig* config) {
  ASSIGN_OR_RETURN(config->vocab_size,
                   ReadInt(json, "vocab_size", 1, kMaxVocabulary));
  ASSIGN_OR_RETURN(config->hidden_size,
                   ReadInt(json, "hidden_size", 1, kMaxWidth));
  ASSIGN_OR_RETURN(const int intermediate_size,
                   ReadInt(json, "ffn_dim", 1, kMaxWidth));
  ASSIGN_OR_RETURN(const int num_layers,
                   ReadInt(json, "num_hidden_layers", 1, kMaxLayers));
  config->layers.assign(num_layers, {.intermediate_size = intermediate_size});
  ASSIGN_OR_RETURN(config->max_context,
                   ReadInt(json, "max_position_embeddings", 1, kMaxContext));
  ASSIGN_OR_RETURN(config->num_heads,
                   ReadInt(json, "num_attention_heads", 1, kMaxHeads));
  ASSIGN_OR_RETURN(
      const int embedding_size,
      ReadInt(json, "word_embed_proj_dim", 1, kMaxWidth, config->hidden_size));
  if (embedding_size != config->hidden_size) {
    config->word_embed_proj_dim = embedding_size;
  }
  return SetHeadDim(config, "hidden_size", "num_attention_heads");
}

absl::Status ReadOptNorms(const json::object& json, TransformerConfig* config) {
  config->norm = NormKind::kLayer;
  config->norm_eps = 1e-5;
  ASSIGN_OR_RETURN(const bool are_before,
                   ReadBool(json, "do_layer_norm_before", true));
  config->norms_sums = !are_before;
  ASSIGN_OR_RETURN(const bool lacks_last,
                   ReadBool(json, "_remove_final_layer_norm", false));
  if (lacks_last && are_before) {
    return InvalidArgument("_remove_final_layer_norm true is not supported");
  }
  ASSIGN_OR_RETURN(const bool have_weights,
                   ReadBool(json, "layer_norm_elementwise_affine", true));
  if (have_weights) return absl::OkStatus();
  return InvalidArgument("layer_norm_elementwise_affine false is not ",
                         "supported");
}

absl::Status ReadOpt(const json::object& json, TransformerConfig* config) {
  RETURN_IF_ERROR(ReadOptSizes(json, config));
  RETURN_IF_ERROR(ReadOptNorms(json, config));
  config->names = kOptNames;
  config->positions = PositionKind::kLearned;
  config->position_offset = 2;
  config->has_gate = false;
  config->eos_token_ids = {2};
  ASSIGN_OR_RETURN(
      config->activation,
      ReadAnyActivation(json, "activation_function", Activation::kRelu));
  ASSIGN_OR_RETURN(const bool has_bias, ReadBool(json, "enable_bias", true));
  config->has_qkv_bias = has_bias;
  config->has_output_bias = has_bias;
  config->has_mlp_bias = has_bias;
  ASSIGN_OR_RETURN(config->tie_word_embeddings,
                   ReadBool(json, "tie_word_embeddings", true));
  return absl::OkStatus();
}

}  // namespace

constexpr ModelFamily kOptFamily = {.model_type = "opt",
                                    .name = "OPT",
                                    .architecture = "OPTForCausalLM",
                                    .read = ReadOpt};

}  // namespace espalier
