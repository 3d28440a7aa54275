// Llama 1, 2, 3 and models of the same architecture.
#include "model/config_fields.h"
#include "model/family_fields.h"
#include "model/model_family.h"

namespace espalier {
namespace {

absl::Status ReadLlama(const json::object& json, TransformerConfig* config) {
  RETURN_IF_ERROR(ReadDecoder(json, {}, config));
  RETURN_IF_ERROR(ReadAttentionBias(json, config));
  ASSIGN_OR_RETURN(config->has_mlp_bias, ReadBool(json, "mlp_bias", false));
  return ReadRope(json, {}, config);
}

}  // namespace

constexpr ModelFamily kLlamaFamily = {.model_type = "llama",
                                      .name = "Llama",
                                      .architecture = "LlamaForCausalLM",
                                      .read = ReadLlama};

}  // namespace espalier
