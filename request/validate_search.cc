#include "request/validate_search.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/field_error.h"
#include "base/status.h"
#include "request/param_checks.h"

namespace espalier {
namespace {

// Checks that there is at least one, and no more than a step has room for.
absl::Status CheckNumSequences(std::string_view field, int64_t count,
                               const ModelDescription& model) {
  RETURN_IF_ERROR(CheckRange(field, count, 1, kMaxSequences));
  if (count <= model.limits.max_beams) return absl::OkStatus();
  return InvalidField(
      FieldName{field}, " must be at most ", Limit(model.limits.max_beams),
      " (", OptionName{"max_beams"}, ", what a step has room for)", Got(count));
}

// Options that rank hypotheses or end the search do not apply to perturbed
// log-probabilities.
absl::Status ValidateStochastic(const GenerationParams& params) {
  constexpr Prose kWith = "with `stochastic`";
  RETURN_IF_ERROR(CheckOff("do_sample", params.do_sample, false, kWith));
  RETURN_IF_ERROR(
      CheckOff<int64_t>("num_beam_groups", params.num_beam_groups, 1, kWith));
  RETURN_IF_ERROR(
      CheckOff("length_penalty", params.length_penalty, 1.0, kWith));
  RETURN_IF_ERROR(
      CheckOff("length_counts_eos", params.length_counts_eos, true, kWith));
  if (params.length_penalty_form != LengthPenaltyForm::kPower) {
    return InvalidField(
        "`length_penalty_form` must be \"power\" with `stochastic`",
        Got("\"wu\""));
  }
  if (params.early_stopping != EarlyStopping::kFalse) {
    return InvalidField(
        "`early_stopping` must be false with `stochastic`",
        Got(params.early_stopping == EarlyStopping::kTrue ? "true"
                                                          : "\"never\""));
  }
  return absl::OkStatus();
}

absl::Status ValidateGroups(const GenerationParams& params) {
  const int64_t num_groups = params.num_beam_groups;
  RETURN_IF_ERROR(CheckRange("num_beam_groups", num_groups, 1, params.num_beams,
                             " (`num_beams`)"));
  if (params.num_beams % num_groups != 0) {
    return InvalidField("`num_beam_groups` must divide `num_beams`, ",
                        params.num_beams, Got(num_groups));
  }
  RETURN_IF_ERROR(CheckFloat32("diversity_penalty", params.diversity_penalty));
  if (params.diversity_penalty < 0) {
    return InvalidField("`diversity_penalty` must be at least 0",
                        Got(params.diversity_penalty));
  }
  if (num_groups > 1) {
    return CheckOff("do_sample", params.do_sample, false,
                    "with `num_beam_groups` above 1");
  }
  return CheckOff("diversity_penalty", params.diversity_penalty, 0.0,
                  "without `num_beam_groups` above 1");
}

// So many hypotheses end the search that there are `num_returned`. Groups
// count for themselves (beam/strategy/search_termination.h).
absl::Status ValidatePatience(const GenerationParams& params,
                              int64_t num_returned) {
  if (params.early_stopping != EarlyStopping::kTrue) {
    return CheckOff("patience", params.patience, 1.0,
                    "without `early_stopping` true");
  }
  if (!(params.patience > 0)) {
    return InvalidField("`patience` must be above 0", Got(params.patience));
  }
  const double num_groups = static_cast<double>(params.num_beam_groups);
  const double of_group = std::max(
      1.0, std::round(params.num_beams / num_groups * params.patience));
  if (num_groups * of_group >= num_returned && of_group <= kMaxSequences) {
    return absl::OkStatus();
  }
  return InvalidField(
      "`patience` must end the search with at least ", Limit(num_returned),
      " (`num_return_sequences`) and at most ", Limit(kMaxSequences),
      " finished hypotheses", Got(params.patience));
}

absl::Status ValidateBeams(const ModelDescription& model,
                           const GenerationParams& params) {
  RETURN_IF_ERROR(CheckNumSequences("num_beams", params.num_beams, model));
  RETURN_IF_ERROR(CheckRange("num_return_sequences",
                             params.num_return_sequences, 1, params.num_beams,
                             " (`num_beams`)"));
  if (params.best_of) {
    return InvalidField("`best_of` must be unset with beams",
                        Got(*params.best_of));
  }
  return params.stochastic ? ValidateStochastic(params) : absl::OkStatus();
}

absl::Status ValidateBestOf(const ModelDescription& model,
                            const GenerationParams& params) {
  const int64_t count = *params.best_of;
  RETURN_IF_ERROR(CheckNumSequences("best_of", count, model));
  if (count >= params.num_return_sequences) return absl::OkStatus();
  return InvalidField("`best_of` must be at least ",
                      Limit(params.num_return_sequences),
                      " (`num_return_sequences`)", Got(count));
}

absl::Status ValidateSamples(const ModelDescription& model,
                             const GenerationParams& params) {
  const int64_t count = params.num_return_sequences;
  RETURN_IF_ERROR(CheckNumSequences("num_return_sequences", count, model));
  return params.best_of ? ValidateBestOf(model, params) : absl::OkStatus();
}

absl::Status ValidateGreedy(const GenerationParams& params) {
  RETURN_IF_ERROR(
      CheckAtLeast("num_return_sequences", params.num_return_sequences, 1));
  const absl::Status one = CheckOff<int64_t>(
      "num_return_sequences", params.num_return_sequences, 1,
      "in greedy search (`num_beams` is 1 and `do_sample` false)");
  if (!one.ok()) {
    return AppendParts(one,
                       "; raise `num_beams` for the best of a search, or add "
                       "`do_sample` for samples");
  }
  if (!params.best_of) return absl::OkStatus();
  return InvalidField("`best_of` must be unset without `do_sample`",
                      Got(*params.best_of));
}

}  // namespace

absl::Status ValidateSearch(const ModelDescription& model,
                            const GenerationParams& params) {
  RETURN_IF_ERROR(CheckRange("num_beams", params.num_beams, 1, kMaxSequences));
  RETURN_IF_ERROR(IsBeamSearch(params) ? ValidateBeams(model, params)
                  : params.do_sample   ? ValidateSamples(model, params)
                                       : ValidateGreedy(params));
  RETURN_IF_ERROR(ValidateGroups(params));
  return ValidatePatience(
      params, IsBeamSearch(params) ? params.num_return_sequences : 1);
}

}  // namespace espalier
