// StableLM: Llama with LayerNorm and heads that are rotated in part.
#include "base/status.h"
#include "model/config_fields.h"
#include "model/family_fields.h"
#include "model/model_family.h"

namespace espalier {
namespace {

constexpr RopeType kStableLmRopeTypes[] = {RopeType::kDefault,
                                           RopeType::kLinear};

absl::Status ReadStableLm(const json::object& json, TransformerConfig* config) {
  // Only StableLM 2 12B sets these.
  for (const char* key : {"qk_layernorm", "use_parallel_residual"}) {
    ASSIGN_OR_RETURN(const bool is_set, ReadBool(json, key, false));
    if (is_set) return InvalidArgument(key, " true is not supported");
  }
  RETURN_IF_ERROR(ReadDecoder(json,
                              {.num_kv_heads = 32,
                               .norm_eps_field = "layer_norm_eps",
                               .norm_eps = 1e-5},
                              config));
  if (config->q_size() != config->hidden_size) {
    return InvalidArgument("hidden_size ", config->hidden_size,
                           " must be num_attention_heads ", config->num_heads,
                           " times head_dim ", config->head_dim);
  }
  config->norm = NormKind::kLayer;
  config->eos_token_ids = {0};
  ASSIGN_OR_RETURN(config->has_qkv_bias, ReadBool(json, "use_qkv_bias", false));
  return ReadRope(json,
                  {.types = kStableLmRopeTypes,
                   .allows_partial = true,
                   .partial_rotary_factor = 0.25},
                  config);
}

}  // namespace

constexpr ModelFamily kStableLmFamily = {.model_type = "stablelm",
                                         .name = "StableLM",
                                         .architecture = "StableLmForCausalLM",
                                         .read = ReadStableLm};

}  // namespace espalier
