// Gemma 1: Llama with norms that multiply by 1 + weight, scaled embeddings and
// GELU.
#include "base/json.h"
#include "base/status.h"
#include "model/config_fields.h"
#include "model/family_fields.h"
#include "model/model_family.h"

namespace espalier {
namespace {

// hidden_act of the first releases is "gelu", and always stood for this.
constexpr DecoderDefaults kGemma1Defaults = {
    .num_kv_heads = 16,
    .head_dim = 256,
    .activation = Activation::kGeluTanh,
    .gelu_is_tanh = true,
    .tie_word_embeddings = true};

absl::Status ReadGemma1(const json::object& json, TransformerConfig* config) {
  RETURN_IF_ERROR(ReadDecoder(json, kGemma1Defaults, config));
  // transformers 4 read it in the place of hidden_act, 5 does not.
  ASSIGN_OR_RETURN(
      const Activation named,
      ReadActivation(json, "hidden_activation", config->activation));
  if (named != config->activation) {
    return InvalidArgument("hidden_activation must be what hidden_act says, ",
                           "got ", Shown(FindField(json, "hidden_activation")));
  }
  RETURN_IF_ERROR(ReadAttentionBias(json, config));
  config->norm_adds_one = true;
  config->scales_embeddings = true;
  config->eos_token_ids = {1};
  return ReadRope(json, {}, config);
}

}  // namespace

constexpr ModelFamily kGemmaFamily = {.model_type = "gemma",
                                      .name = "Gemma",
                                      .architecture = "GemmaForCausalLM",
                                      .read = ReadGemma1};

}  // namespace espalier
