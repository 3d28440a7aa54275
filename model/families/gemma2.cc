// Gemma 2: soft caps of scores and logits, and a sliding window in every other
// layer, the first among them.
#include "base/status.h"
#include "model/families/gemma_fields.h"
#include "model/family_fields.h"
#include "model/model_family.h"

namespace espalier {
namespace {

absl::Status ReadGemma2(const json::object& json, TransformerConfig* config) {
  RETURN_IF_ERROR(ReadGemma(json, /*logit_soft_cap=*/30, config));
  ASSIGN_OR_RETURN(config->attention_soft_cap,
                   ReadSoftCap(json, "attn_logit_softcapping", 50));
  ASSIGN_OR_RETURN(const int window, ReadGemmaWindow(json));
  RETURN_IF_ERROR(ReadLayerTypes(
      json, window, [](int i) { return i % 2 == 0; }, config));
  return ReadRope(json, {}, config);
}

}  // namespace

constexpr ModelFamily kGemma2Family = {.model_type = "gemma2",
                                       .name = "Gemma 2",
                                       .architecture = "Gemma2ForCausalLM",
                                       .read = ReadGemma2};

}  // namespace espalier
