#include "exec_request/model_description.h"

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

}  // namespace

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
  for (const TokenId eos : model.eos_token_ids) {
    if (eos >= 0 && eos < model.vocab_size) continue;
    return InvalidArgument(
        "the model's eos_token_ids must be token ids in [0, ", model.vocab_size,
        "), got ", eos);
  }
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
  if (limits.max_beams <= limits.max_step_tokens) return absl::OkStatus();
  return InvalidArgument("the model's limits.max_beams must be at most its ",
                         "limits.max_step_tokens (", limits.max_step_tokens,
                         "), because the beams of a request run together, got ",
                         limits.max_beams);
}

}  // namespace espalier
