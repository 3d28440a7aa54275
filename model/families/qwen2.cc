// Qwen 2 and 2.5: Llama with biases of q, k and v, and a sliding window in the
// later layers if it is asked for.
#include "model/families/qwen_fields.h"
#include "model/family_fields.h"
#include "model/model_family.h"

namespace espalier {
namespace {

absl::Status ReadQwen2(const json::object& json, TransformerConfig* config) {
  RETURN_IF_ERROR(ReadDecoder(json, {.num_kv_heads = 32}, config));
  config->has_qkv_bias = true;
  RETURN_IF_ERROR(ReadQwenWindows(json, config));
  return ReadRope(json, {}, config);
}

}  // namespace

constexpr ModelFamily kQwen2Family = {.model_type = "qwen2",
                                      .name = "Qwen2",
                                      .architecture = "Qwen2ForCausalLM",
                                      .read = ReadQwen2};

}  // namespace espalier
