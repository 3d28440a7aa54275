// LengthPenalty: how the length of a hypothesis divides its sum of
// log-probabilities, so that long ones can be compared with short ones:
//
//   power  score = cum / t^a              transformers, CTranslate2
//   wu     score = cum / ((5 + t) / 6)^a  Wu et al. 2016
//
// with a = length_penalty and t the generated tokens, an EOS included. a = 0
// compares sums. With a = 1 a power compares means; Wu's form grows a sixth as
// fast, so it favours length less.
//
// Source: Wu et al. 2016, https://arxiv.org/abs/1609.08144, equation 14.
#pragma once

#include "request/generation_params.h"

namespace espalier {

class LengthPenalty {
 public:
  explicit LengthPenalty(const GenerationParams& params)
      : form_(params.length_penalty_form), exponent_(params.length_penalty) {}

  // Each operation is rounded to float32, as in transformers. REQUIRES: length
  // >= 1.
  float Score(float cum_log_prob, int length) const;

  // Whether the same sum scores higher the longer the hypothesis is.
  bool favours_length() const { return exponent_ > 0; }

 private:
  LengthPenaltyForm form_;
  double exponent_;
};

// The mean, as samples are compared.
float MeanLogProb(float cum_log_prob, int length);

}  // namespace espalier
