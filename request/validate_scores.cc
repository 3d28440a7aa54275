#include "request/validate_scores.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "base/field_error.h"
#include "base/status.h"
#include "base/wording.h"
#include "request/param_checks.h"

namespace espalier {
namespace {

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

// Nats: no model that says anything gives a token less than exp(-10^4).
constexpr double kUnlikely = 1e4;

bool IsFinite(double value) { return std::isfinite(static_cast<float>(value)); }

absl::Status TooLarge(std::string_view field, double value,
                      const GenerationParams& params) {
  return InvalidField(FieldName{field},
                      " must keep sums of scores within float32 over ",
                      Pluralize(*params.max_new_tokens, "token"),
                      " (`max_new_tokens`)", Got(value));
}

constexpr std::string_view kDecay = "exponential_decay_length_penalty[1]";

// Upper bound of the factor on the score of an EOS at the last position.
double LargestDecay(const GenerationParams& params) {
  const auto& decay = params.exponential_decay_length_penalty;
  const double num_beyond =
      static_cast<double>(*params.max_new_tokens - 1 - decay->start_index);
  return std::max(1.0, std::pow(decay->factor, std::max(0.0, num_beyond)));
}

// The largest sum that a sequence can reach, option by option in the order in
// which they act (kernels/logits/score_processors.h). Log-probabilities are
// below 0, so only these options raise scores. An option that lowers a score
// too far acts as a ban, except diversity_penalty: the only possible token may
// still be chosen, and its sums must be finite.
class LargestSum {
 public:
  explicit LargestSum(const GenerationParams& params)
      : params_(params), length_(static_cast<double>(*params.max_new_tokens)) {}

  absl::Status Check() {
    RETURN_IF_ERROR(AddBias());
    score_ /= std::min(1.0, params_.repetition_penalty);
    RETURN_IF_ERROR(CheckSum("repetition_penalty", params_.repetition_penalty));
    score_ += std::max(0.0, -params_.frequency_penalty) * length_;
    RETURN_IF_ERROR(CheckSum("frequency_penalty", params_.frequency_penalty));
    score_ += std::max(0.0, -params_.presence_penalty);
    RETURN_IF_ERROR(CheckSum("presence_penalty", params_.presence_penalty));
    if (params_.do_sample) {
      score_ = std::max(score_, kUnlikely) / params_.temperature;
      RETURN_IF_ERROR(CheckSum("temperature", params_.temperature));
    }
    cost_of_others_ = params_.diversity_penalty *
                      static_cast<double>(NumBeamsOfOtherGroups());
    if (!IsFinite(cost_of_others_ * length_)) {
      return TooLarge("diversity_penalty", params_.diversity_penalty, params_);
    }
    RETURN_IF_ERROR(CheckDecay());
    return CheckLengthPenalty();
  }

 private:
  absl::Status AddBias() {
    for (const auto& [token, bias] : params_.logit_bias) {
      lowest_bias_ = std::min(lowest_bias_, bias);
      if (bias <= score_) continue;
      score_ = bias;
      if (IsFinite(score_ * length_)) continue;
      return TooLarge(Concat("logit_bias of token ", token), bias, params_);
    }
    return AddSequenceBias();
  }

  // Bounds a token that completes all sequences.
  absl::Status AddSequenceBias() {
    for (const auto& [tokens, bias] : params_.sequence_bias) {
      lowest_bias_ += std::min(0.0, bias);
      score_ += std::max(0.0, bias);
      if (IsFinite(score_ * length_)) continue;
      return TooLarge(Concat("sequence_bias of a sequence that ends in token ",
                             tokens.back()),
                      bias, params_);
    }
    return absl::OkStatus();
  }

  // Bounds the one EOS of a sequence.
  absl::Status CheckDecay() const {
    const auto& decay = params_.exponential_decay_length_penalty;
    if (!decay) return absl::OkStatus();
    double eos = std::max(score_, Lowest()) * LargestDecay(params_);
    if (params_.do_sample) eos /= params_.temperature;
    if (IsFinite(score_ * length_ + eos)) return absl::OkStatus();
    return TooLarge(kDecay, decay->factor, params_);
  }

  // The size of the lowest score that a token may be chosen with.
  double Lowest() const {
    return (kUnlikely - lowest_bias_) *
               std::max(1.0, params_.repetition_penalty) +
           std::max(0.0, params_.frequency_penalty) * length_ +
           std::max(0.0, params_.presence_penalty) + cost_of_others_;
  }

  absl::Status CheckSum(std::string_view field, double value) const {
    if (IsFinite(score_ * length_)) return absl::OkStatus();
    return TooLarge(field, value, params_);
  }

  // Returns the number of beams that may have chosen the token before.
  int64_t NumBeamsOfOtherGroups() const {
    return params_.num_beams - params_.num_beams / params_.num_beam_groups;
  }

  // Below 0 it makes sums larger, and low ones lower.
  absl::Status CheckLengthPenalty() const {
    if (params_.length_penalty >= 0) return absl::OkStatus();
    const bool is_wu = params_.length_penalty_form == LengthPenaltyForm::kWu;
    const double base = is_wu ? (5 + length_) / 6 : length_;
    double low = Lowest();
    if (params_.do_sample) low /= params_.temperature;
    const double sum = std::max(score_, low) * length_;
    if (IsFinite(sum / std::pow(base, params_.length_penalty))) {
      return absl::OkStatus();
    }
    return TooLarge("length_penalty", params_.length_penalty, params_);
  }

  const GenerationParams& params_;
  const double length_;
  double score_ = 0;  // upper bound for a token
  double lowest_bias_ = 0;
  double cost_of_others_ = 0;  // upper bound for a token, with beam groups
};

// A token may complete all sequences of sequence_bias; signs are ignored.
absl::Status CheckBiases(const GenerationParams& params, double penalties) {
  double sum = penalties;
  for (const auto& [token, bias] : params.logit_bias) {
    sum = std::max(sum, penalties + std::abs(bias));
    if (!IsFinite(sum)) {
      return TooLarge(Concat("logit_bias of token ", token), bias, params);
    }
  }
  for (const auto& [tokens, bias] : params.sequence_bias) {
    sum += std::abs(bias);
    if (!IsFinite(sum)) {
      return TooLarge(Concat("sequence_bias of a sequence that ends in token ",
                             tokens.back()),
                      bias, params);
    }
  }
  return absl::OkStatus();
}

}  // namespace

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

absl::Status ValidateScores(const GenerationParams& params) {
  const double length = static_cast<double>(*params.max_new_tokens);
  // Bounds a token at every position; a sum that overflows here may also
  // overflow earlier, with the opposite sign.
  const double frequency = std::abs(params.frequency_penalty) * length;
  if (!IsFinite(frequency)) {
    return TooLarge("frequency_penalty", params.frequency_penalty, params);
  }
  if (!IsFinite(frequency + std::abs(params.presence_penalty))) {
    return TooLarge("presence_penalty", params.presence_penalty, params);
  }
  if (params.exponential_decay_length_penalty &&
      !IsFinite(LargestDecay(params))) {
    return TooLarge(kDecay, params.exponential_decay_length_penalty->factor,
                    params);
  }
  // Samples and stochastic beams do not add up what options make of scores, and
  // beams with times make log-probabilities of them.
  if (IsBeamSearch(params) && !params.stochastic && !params.timestamps) {
    RETURN_IF_ERROR(LargestSum(params).Check());
  }
  return CheckBiases(params, frequency + std::abs(params.presence_penalty));
}

}  // namespace espalier
