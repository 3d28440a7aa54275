#include "beam/strategy/length_penalty.h"

#include <cmath>

namespace espalier {

float LengthPenalty::Score(float cum_log_prob, int length) const {
  const double base =
      form_ == LengthPenaltyForm::kWu ? (5.0 + length) / 6.0 : length;
  return cum_log_prob / static_cast<float>(std::pow(base, exponent_));
}

float MeanLogProb(float cum_log_prob, int length) {
  return cum_log_prob / static_cast<float>(length);
}

}  // namespace espalier
