// Qwen 3: Qwen 2 without biases (unless asked for), with norms of queries and
// keys head by head.
#include "base/status.h"
#include "model/families/qwen_fields.h"
#include "model/family_fields.h"
#include "model/model_family.h"

namespace espalier {
namespace {

absl::Status ReadQwen3(const json::object& json, TransformerConfig* config) {
  RETURN_IF_ERROR(
      ReadDecoder(json, {.num_kv_heads = 32, .head_dim = 128}, config));
  config->names.q_norm = "self_attn.q_norm";
  config->names.k_norm = "self_attn.k_norm";
  config->has_qk_norms = true;
  RETURN_IF_ERROR(ReadAttentionBias(json, config));
  RETURN_IF_ERROR(ReadQwenWindows(json, config));
  return ReadRope(json, {}, config);
}

}  // namespace

constexpr ModelFamily kQwen3Family = {.model_type = "qwen3",
                                      .name = "Qwen3",
                                      .architecture = "Qwen3ForCausalLM",
                                      .read = ReadQwen3};

}  // namespace espalier
