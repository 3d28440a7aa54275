// LengthPenalty: divides a hypothesis's sum of log-probabilities by a function
// of its length, so that long and short hypotheses compare:
//
//   power  score = cum / t^a              transformers, CTranslate2
//   wu     score = cum / ((5 + t) / 6)^a  Wu et al. 2016
//
// with a = length_penalty and t the number of generated tokens, including an
// EOS. a = 0 compares sums. With a = 1, the power form compares means; Wu's
// form grows a sixth as fast, so it favours length less.
//
// Source: Wu et al. 2016, https://arxiv.org/abs/1609.08144, equation 14.
#pragma once

#include "request/generation_params.h"

namespace espalier {

class LengthPenalty {
 public:
  explicit LengthPenalty(const GenerationParams& params)
      : form_(params.length_penalty_form), exponent_(params.length_penalty) {}

  // Returns the score. Each operation is rounded to float32, as in
  // transformers.
  // REQUIRES: length >= 1.
  float Score(float cum_log_prob, int length) const;

  // True if a longer hypothesis with an equal sum has a higher score.
  bool favours_length() const { return exponent_ > 0; }

 private:
  LengthPenaltyForm form_;
  double exponent_;
};

// Returns the mean log-probability, by which samples compare.
float MeanLogProb(float cum_log_prob, int length);

}  // namespace espalier
