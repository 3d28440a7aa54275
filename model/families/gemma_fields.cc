#include "model/families/gemma_fields.h"

#include "base/status.h"
#include "model/config_fields.h"
#include "model/family_fields.h"

namespace espalier {
namespace {

constexpr int kDefaultGemmaWindow = 4096;
constexpr double kMaxScalar = 1e6;

constexpr DecoderDefaults kGemmaDefaults = {
    .num_kv_heads = 4,
    .head_dim = 256,
    .activation_field = "hidden_activation",
    .activation = Activation::kGeluTanh,
    .tie_word_embeddings = true};

}  // namespace

absl::Status ReadGemma(const json::object& json, double logit_soft_cap,
                       TransformerConfig* config) {
  RETURN_IF_ERROR(ReadDecoder(json, kGemmaDefaults, config));
  RETURN_IF_ERROR(ReadAttentionBias(json, config));
  config->names.post_attention_norm = "post_attention_layernorm";
  config->names.mlp_norm = "pre_feedforward_layernorm";
  config->names.post_mlp_norm = "post_feedforward_layernorm";
  config->has_post_norms = true;
  config->norm_adds_one = true;
  config->scales_embeddings = true;
  ASSIGN_OR_RETURN(
      config->query_pre_attn_scalar,
      ReadNumber(json, "query_pre_attn_scalar", 0, kMaxScalar, 256.0));
  ASSIGN_OR_RETURN(
      config->logit_soft_cap,
      ReadSoftCap(json, "final_logit_softcapping", logit_soft_cap));
  return absl::OkStatus();
}

absl::StatusOr<int> ReadGemmaWindow(const json::object& json) {
  return ReadWindow(json, "sliding_window", kDefaultGemmaWindow);
}

}  // namespace espalier
