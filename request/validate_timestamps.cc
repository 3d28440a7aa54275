#include "request/validate_timestamps.h"

#include "base/field_error.h"
#include "base/status.h"
#include "request/param_checks.h"

namespace espalier {
namespace {

constexpr Prose kWith = "with `timestamps`";

absl::Status CheckTokensOf(const ModelDescription& model,
                           const TimestampParams& timestamps) {
  const int64_t first_time = timestamps.first_time;
  RETURN_IF_ERROR(CheckRange("timestamps.first_time", first_time, 1,
                             model.vocab_size - 1, " (a token id)"));
  constexpr Prose kBelow = " (below `timestamps.first_time`)";
  RETURN_IF_ERROR(
      CheckRange("timestamps.end", timestamps.end, 0, first_time - 1, kBelow));
  RETURN_IF_ERROR(CheckRange("timestamps.no_timestamps",
                             timestamps.no_timestamps, 0, first_time - 1,
                             kBelow));
  if (!timestamps.max_initial_step) return absl::OkStatus();
  return CheckAtLeast("timestamps.max_initial_step",
                      *timestamps.max_initial_step, 0);
}

absl::Status MustBeUnset(std::string_view field) {
  return InvalidField(FieldName{field}, " must be unset ", kWith,
                      Got("a value"));
}

}  // namespace

absl::Status ValidateTimestamps(const ModelDescription& model,
                                const GenerationParams& params) {
  if (!params.timestamps) return absl::OkStatus();
  RETURN_IF_ERROR(CheckTokensOf(model, *params.timestamps));
  RETURN_IF_ERROR(CheckOff("stochastic", params.stochastic, false, kWith));
  RETURN_IF_ERROR(
      CheckOff<int64_t>("num_beam_groups", params.num_beam_groups, 1, kWith));
  if (IsBeamSearch(params)) {
    RETURN_IF_ERROR(CheckOff("do_sample", params.do_sample, false,
                             "with `timestamps` and `num_beams` above 1"));
  }
  if (params.forced_bos_token_id) return MustBeUnset("forced_bos_token_id");
  if (!params.forced_eos_token_id.empty()) {
    return MustBeUnset("forced_eos_token_id");
  }
  if (params.constraint) return MustBeUnset("constraint");
  if (params.allowed_sequences) return MustBeUnset("allowed_sequences");
  if (params.speculate &&
      params.speculate->method != SpeculationMethod::kNone) {
    return InvalidField("`speculate.method` must be \"off\" ", kWith,
                        Got("\"", NameOf(params.speculate->method), '"'));
  }
  return absl::OkStatus();
}

}  // namespace espalier
