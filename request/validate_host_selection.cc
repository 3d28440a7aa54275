#include "request/validate_host_selection.h"

#include <algorithm>

#include "base/field_error.h"
#include "base/status.h"
#include "request/param_checks.h"

namespace espalier {

absl::Status ValidateHostSelection(const ModelDescription& model,
                                   const GenerationParams& params) {
  if (model.selects_on_host) return absl::OkStatus();
  constexpr Prose kHere = "where a GPU selects";
  // Stochastic beams are drawn from what is normalised anyway.
  if (!params.stochastic) {
    RETURN_IF_ERROR(CheckOff("renormalize_logits", params.renormalize_logits,
                             false, kHere));
  }
  if (params.timestamps) {
    return InvalidField("`timestamps` must be unset ", kHere, Got("a value"));
  }
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
