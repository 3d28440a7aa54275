#include "request/validate_host_selection.h"

#include <algorithm>
#include <utility>

#include "base/field_error.h"
#include "base/status.h"
#include "request/param_checks.h"

namespace espalier {
namespace {

// A GPU bans in place of logits before it normalises, and has no other edits
// then (kernels/resident/cuda_edited_rows.h). Stochastic beams are drawn from
// what is normalised anyway.
absl::Status CheckEditsOnlyBan(const GenerationParams& params) {
  const bool normalises = params.renormalize_logits && !params.stochastic;
  if (!normalises && !params.timestamps) return absl::OkStatus();
  const Prose where = params.timestamps
                          ? "with `timestamps` where a GPU selects"
                          : "with `renormalize_logits` where a GPU selects";
  if (IsBeamSearch(params)) {
    RETURN_IF_ERROR(CheckOff("do_sample", params.do_sample, false, where));
    RETURN_IF_ERROR(
        CheckOff<int64_t>("num_beam_groups", params.num_beam_groups, 1, where));
  }
  RETURN_IF_ERROR(
      CheckOff("repetition_penalty", params.repetition_penalty, 1.0, where));
  RETURN_IF_ERROR(
      CheckOff("frequency_penalty", params.frequency_penalty, 0.0, where));
  RETURN_IF_ERROR(
      CheckOff("presence_penalty", params.presence_penalty, 0.0, where));
  if (params.speculate &&
      params.speculate->method != SpeculationMethod::kNone) {
    return InvalidField("`speculate.method` must be \"off\" ", where,
                        Got("\"", NameOf(params.speculate->method), '"'));
  }
  const std::pair<const char*, bool> unset[] = {
      {"logit_bias", params.logit_bias.empty()},
      {"sequence_bias", params.sequence_bias.empty()},
      {"exponential_decay_length_penalty",
       !params.exponential_decay_length_penalty},
      {"forced_bos_token_id", !params.forced_bos_token_id},
      {"forced_eos_token_id", params.forced_eos_token_id.empty()},
      {"allowed_token_ids", !params.allowed_token_ids},
      {"allowed_sequences", !params.allowed_sequences},
      {"constraint", !params.constraint},
      {"logprobs", !params.logprobs}};
  for (const auto& [field, is_unset] : unset) {
    if (is_unset) continue;
    return InvalidField(FieldName{field}, " must be unset ", where,
                        Got("a value"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateHostSelection(const ModelDescription& model,
                                   const GenerationParams& params) {
  if (model.selects_on_host) return absl::OkStatus();
  constexpr Prose kHere = "where a GPU selects";
  RETURN_IF_ERROR(CheckEditsOnlyBan(params));
  const auto is_long = [](const SequenceBias& bias) {
    return bias.tokens.size() > 1;
  };
  const auto found = std::ranges::find_if(params.sequence_bias, is_long);
  if (found != params.sequence_bias.end()) {
    return InvalidField("`sequence_bias` must be of single tokens ", kHere,
                        Got("one of ", found->tokens.size()));
  }
  RETURN_IF_ERROR(
      CheckOff("legal_log_mass", params.legal_log_mass, false, kHere));
  return CheckOff("logprobs_mode", NameOf(params.logprobs_mode),
                  NameOf(LogprobsMode::kRaw), kHere);
}

}  // namespace espalier
