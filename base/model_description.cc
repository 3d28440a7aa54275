#include "base/model_description.h"

#include <algorithm>
#include <string_view>

#include "base/status.h"

namespace espalier {
namespace {

absl::Status CheckField(std::string_view field, int64_t least, int64_t value) {
  if (value >= least) return absl::OkStatus();
  return InvalidArgument("the model's ", field, " must be at least ", least,
                         ", got ", value);
}

absl::Status CheckTokenIds(std::string_view field,
                           const std::vector<TokenId>& ids, int vocab_size) {
  for (const TokenId id : ids) {
    if (id >= 0 && id < vocab_size) continue;
    return InvalidArgument("the model's ", field, " must be token ids in [0, ",
                           vocab_size, "), got ", id);
  }
  return absl::OkStatus();
}

absl::Status CheckEncoder(const ModelDescription& model) {
  if (!model.encoder) return absl::OkStatus();
  const EncoderDescription& encoder = *model.encoder;
  RETURN_IF_ERROR(
      CheckField("encoder.max_source_tokens", 1, encoder.max_source_tokens));
  if (encoder.features) {
    RETURN_IF_ERROR(
        CheckField("encoder.features.num_rows", 1, encoder.features->num_rows));
    RETURN_IF_ERROR(
        CheckField("encoder.features.num_cols", 1, encoder.features->num_cols));
  }
  if (encoder.decoder_prompt.empty()) {
    return InvalidArgument(
        "the model's encoder.decoder_prompt must not be empty, got []");
  }
  RETURN_IF_ERROR(CheckTokenIds("encoder.decoder_prompt",
                                encoder.decoder_prompt, model.vocab_size));
  return CheckField("max_context",
                    static_cast<int64_t>(encoder.decoder_prompt.size()) + 1,
                    model.max_context);
}

}  // namespace

void BoundBeamsByTokens(StepLimits* limits) {
  if (limits->max_beams != StepLimits().max_beams) return;
  limits->max_beams = limits->max_step_tokens;
}

absl::Status CheckDescription(const ModelDescription& model) {
  RETURN_IF_ERROR(CheckField("vocab_size", 1, model.vocab_size));
  RETURN_IF_ERROR(CheckField("max_context", 1, model.max_context));
  RETURN_IF_ERROR(
      CheckField("default_max_new_tokens", 1, model.default_max_new_tokens));
  RETURN_IF_ERROR(CheckField("num_pages", 1, model.num_pages));
  RETURN_IF_ERROR(CheckField("page_size", 1, model.page_size));
  RETURN_IF_ERROR(CheckField("num_host_slots", 0, model.num_host_slots));
  if (model.num_host_slots > 0 && !model.has_shareable_pages) {
    return InvalidArgument("the model's num_host_slots must be 0 if pages are ",
                           "not all that it keeps of a sequence ",
                           "(has_shareable_pages), got ", model.num_host_slots);
  }
  RETURN_IF_ERROR(
      CheckTokenIds("eos_token_ids", model.eos_token_ids, model.vocab_size));
  RETURN_IF_ERROR(CheckEncoder(model));
  const StepLimits& limits = model.limits;
  RETURN_IF_ERROR(
      CheckField("limits.max_step_tokens", 1, limits.max_step_tokens));
  RETURN_IF_ERROR(CheckField("limits.max_beams", 1, limits.max_beams));
  RETURN_IF_ERROR(
      CheckField("limits.max_prefill_rows", 1, limits.max_prefill_rows));
  RETURN_IF_ERROR(
      CheckField("limits.max_eos_token_ids", 0, limits.max_eos_token_ids));
  RETURN_IF_ERROR(
      CheckField("limits.max_score_edits", 0, limits.max_score_edits));
  RETURN_IF_ERROR(
      CheckField("limits.max_candidates", 1, limits.max_candidates));
  RETURN_IF_ERROR(
      CheckField("limits.max_best_tokens", 0, limits.max_best_tokens));
  RETURN_IF_ERROR(CheckField("limits.max_attention_scores", 0,
                             limits.max_attention_scores));
  if (limits.max_beams <= limits.max_step_tokens) return absl::OkStatus();
  return InvalidArgument("the model's limits.max_beams must be at most its ",
                         "limits.max_step_tokens (", limits.max_step_tokens,
                         "), because the beams of a request run together, got ",
                         limits.max_beams);
}

}  // namespace espalier
