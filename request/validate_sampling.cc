#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "base/field_error.h"
#include "base/status.h"
#include "request/param_checks.h"
#include "request/param_fields.h"
#include "request/validate_params.h"

namespace espalier {
namespace {

// Rounded as the kernels read it.
absl::Status CheckProbability(std::string_view field, double value) {
  const float rounded = static_cast<float>(value);
  if (rounded > 0.0f && rounded <= 1.0f && value <= 1.0) {
    return absl::OkStatus();
  }
  return InvalidField(FieldName{field}, " must be in (0, 1]", Got(value));
}

absl::Status CheckSamplingRanges(const GenerationParams& params) {
  RETURN_IF_ERROR(CheckFloat32("temperature", params.temperature));
  if (params.temperature < 0) {
    return InvalidField("`temperature` must be at least 0",
                        Got(params.temperature));
  }
  RETURN_IF_ERROR(CheckAtLeast("top_k", params.top_k, 0));
  RETURN_IF_ERROR(CheckProbability("top_p", params.top_p));
  if (!(params.min_p >= 0 && params.min_p <= 1)) {
    return InvalidField("`min_p` must be in [0, 1]", Got(params.min_p));
  }
  return CheckProbability("typical_p", params.typical_p);
}

// Checks that the fields of sampling are off; temperature 0 is allowed.
absl::Status CheckDrawsNothing(const GenerationParams& params) {
  for (const ParamField& field : ParamFields()) {
    const bool is_greedy =
        field.name == "temperature" && params.temperature == 0;
    if (!field.Is(kSampledOnly) || field.IsDefault(params) || is_greedy) {
      continue;
    }
    return InvalidField(FieldName{field.name}, " must be ",
                        field.member.show(GenerationParams()),
                        " without `do_sample` or `stochastic`",
                        Got(field.member.show(params)));
  }
  return absl::OkStatus();
}

// Without drawing there is nothing to filter, of beams either.
absl::Status CheckNothingToDraw(const GenerationParams& params) {
  const absl::Status status = CheckDrawsNothing(params);
  if (status.ok()) return status;
  return AppendParts(status, "; add `do_sample` to draw by it");
}

absl::Status ValidateLengthDecay(const LengthDecay& decay) {
  constexpr std::string_view kName = "exponential_decay_length_penalty";
  RETURN_IF_ERROR(CheckAtLeast(Concat(kName, "[0]"), decay.start_index, 0));
  if (decay.factor > 0 && std::isfinite(decay.factor)) return absl::OkStatus();
  return InvalidField(FieldName{kName}, "[1] must be above 0",
                      Got(decay.factor));
}

// Every divisor of a score is a normal float32; 1 at the first token.
absl::Status ValidateLengthPenalty(const GenerationParams& params) {
  const bool is_wu = params.length_penalty_form == LengthPenaltyForm::kWu;
  const double length =
      static_cast<double>(std::max<int64_t>(*params.max_new_tokens, 1));
  const double base = is_wu ? (5 + length) / 6 : length;
  const float divisor =
      static_cast<float>(std::pow(base, params.length_penalty));
  if (std::isfinite(params.length_penalty) && std::isnormal(divisor)) {
    return absl::OkStatus();
  }
  return InvalidField(
      "`length_penalty` must keep ",
      is_wu ? "((5 + length) / 6)^length_penalty" : "length^length_penalty",
      " within float32 up to ", *params.max_new_tokens,
      " tokens (`max_new_tokens`)", Got(params.length_penalty));
}

}  // namespace

absl::Status ValidateSampling(const GenerationParams& params) {
  RETURN_IF_ERROR(CheckSamplingRanges(params));
  if (!params.do_sample && !params.stochastic) {
    return CheckNothingToDraw(params);
  }
  if (IsBeamSearch(params) && static_cast<float>(params.temperature) == 0) {
    return InvalidField("`temperature` must be above 0 with beams",
                        Got(params.temperature));
  }
  return absl::OkStatus();
}

absl::Status ValidatePenalties(const GenerationParams& params) {
  const float repetition = static_cast<float>(params.repetition_penalty);
  if (!(repetition > 0.0f) || !std::isfinite(repetition)) {
    return InvalidField(
        "`repetition_penalty` must be positive and within float32",
        Got(params.repetition_penalty));
  }
  RETURN_IF_ERROR(CheckFloat32("frequency_penalty", params.frequency_penalty));
  RETURN_IF_ERROR(CheckFloat32("presence_penalty", params.presence_penalty));
  RETURN_IF_ERROR(
      CheckAtLeast("no_repeat_ngram_size", params.no_repeat_ngram_size, 0));
  if (params.exponential_decay_length_penalty) {
    RETURN_IF_ERROR(
        ValidateLengthDecay(*params.exponential_decay_length_penalty));
  }
  return ValidateLengthPenalty(params);
}

}  // namespace espalier
