#include "request/generation_params.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string_view>

#include "base/field_error.h"
#include "base/model_description.h"
#include "base/status.h"
#include "request/decoder_prompt.h"
#include "request/param_checks.h"
#include "request/validate_host_selection.h"
#include "request/validate_lengths.h"
#include "request/validate_sampling.h"
#include "request/validate_scores.h"
#include "request/validate_search.h"
#include "request/validate_speculation.h"
#include "request/validate_timestamps.h"
#include "request/validate_tokens.h"

namespace espalier {

namespace {

// Checks the options that report log-probabilities.
absl::Status ValidateReports(const ModelDescription& model,
                             int64_t num_prompt_tokens,
                             const GenerationParams& params) {
  if (params.logprobs) {
    RETURN_IF_ERROR(CheckRange("logprobs", *params.logprobs, 0, kMaxLogProbs));
  }
  if (params.logprobs_mode != LogprobsMode::kRaw && !params.logprobs) {
    return InvalidField(
        "`logprobs_mode` must be \"raw_logprobs\" without `logprobs`",
        Got("\"", NameOf(params.logprobs_mode), '"'));
  }
  if (params.legal_log_mass && !params.constraint &&
      !params.allowed_sequences) {
    return CheckOff("legal_log_mass", true, false,
                    "without `constraint` or `allowed_sequences`");
  }
  if (!params.logprobs) {
    RETURN_IF_ERROR(CheckOff("legal_log_mass", params.legal_log_mass, false,
                             "without `logprobs`"));
  }
  if (params.num_beams == 1 || params.stochastic ||
      params.num_beam_groups > 1) {
    RETURN_IF_ERROR(
        CheckOff("beam_indices", params.beam_indices, false,
                 "without beams, and with `stochastic` or `num_beam_groups`"));
  }
  if (params.prompt_logprobs && model.encoder) {
    return InvalidField(
        "`prompt_logprobs` must be unset for a model with an encoder, whose "
        "prompts have no log-probabilities",
        Got(*params.prompt_logprobs));
  }
  if (!params.prompt_logprobs) {
    return CheckOff<int64_t>("logprobs_start", params.logprobs_start, 0,
                             "without `prompt_logprobs`");
  }
  RETURN_IF_ERROR(CheckRange("logprobs_start", params.logprobs_start, 0,
                             num_prompt_tokens, " (tokens of the prompt)"));
  return CheckRange("prompt_logprobs", *params.prompt_logprobs, 0,
                    kMaxLogProbs);
}

// Checks the deadline, the prefix cache's salt, the priority and the tenant.
absl::Status ValidateScheduling(const GenerationParams& params) {
  if (params.deadline_ms) {
    RETURN_IF_ERROR(
        CheckRange("deadline_ms", *params.deadline_ms, 1, kMaxDeadlineMs));
  }
  const std::string& salt = params.cache_salt;
  RETURN_IF_ERROR(CheckName("cache_salt", salt, kMaxCacheSaltBytes));
  RETURN_IF_ERROR(CheckName("tenant", params.tenant, kMaxTenantBytes));
  if (!params.prefix_cache && !salt.empty()) {
    return InvalidField("`cache_salt` must be empty with `prefix_cache` off",
                        Got(ShownInQuotes(salt)));
  }
  return CheckRange("priority", params.priority, -kMaxAbsPriority,
                    kMaxAbsPriority);
}

}  // namespace

bool IsBeamSearch(const GenerationParams& params) {
  return params.num_beams > 1 || params.stochastic;
}

int NumSequences(const GenerationParams& params) {
  const int64_t count =
      IsBeamSearch(params)
          ? params.num_beams
          : params.best_of.value_or(params.num_return_sequences);
  return static_cast<int>(
      std::min<int64_t>(count, std::numeric_limits<int>::max()));
}

bool CanSpeculate(const GenerationParams& params) {
  if (params.timestamps) return false;
  return !IsBeamSearch(params) ||
         !(params.do_sample || params.stochastic || params.num_beam_groups > 1);
}

bool CanDraftBy(SpeculationMethod method, const GenerationParams& params) {
  if (method == SpeculationMethod::kNone) return true;
  if (!CanSpeculate(params)) return false;
  if (method != SpeculationMethod::kConstraint) return true;
  return !IsBeamSearch(params) && (params.constraint.has_value() ||
                                   params.allowed_sequences.has_value());
}

bool DrawsAtRandom(const GenerationParams& params) {
  const bool greedy = static_cast<float>(params.temperature) == 0;
  return params.stochastic || (params.do_sample && !greedy);
}

std::string_view NameOf(LogprobsMode mode) {
  switch (mode) {
    case LogprobsMode::kRaw:
      return "raw_logprobs";
    case LogprobsMode::kProcessed:
      return "processed_logprobs";
  }
  return "";
}

absl::Status ValidateParams(const ModelDescription& model,
                            int64_t num_prompt_tokens,
                            GenerationParams* params) {
  // A check may rely on those before it.
  RETURN_IF_ERROR(ValidateSearch(model, *params));
  RETURN_IF_ERROR(ValidateSampling(*params));
  RETURN_IF_ERROR(ValidateDecoderPrompt(model, *params));
  RETURN_IF_ERROR(ValidateLengths(model, num_prompt_tokens, params));
  RETURN_IF_ERROR(ValidateStops(model, params));
  RETURN_IF_ERROR(ValidatePenalties(*params));
  RETURN_IF_ERROR(ValidateConstraints(model, params));
  RETURN_IF_ERROR(ValidateTimestamps(model, *params));
  RETURN_IF_ERROR(ValidateScores(*params));
  RETURN_IF_ERROR(ValidateReports(model, num_prompt_tokens, *params));
  RETURN_IF_ERROR(ValidateHostSelection(model, *params));
  RETURN_IF_ERROR(ValidateSpeculation(model, *params));
  return ValidateScheduling(*params);
}

}  // namespace espalier
