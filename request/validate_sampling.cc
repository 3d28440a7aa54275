#include "request/validate_sampling.h"

#include <string_view>

#include "base/field_error.h"
#include "base/status.h"
#include "request/param_checks.h"
#include "request/param_fields.h"

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

}  // namespace espalier
