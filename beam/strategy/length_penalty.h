// LengthPenalty: divides a hypothesis's sum of log-probabilities by a function
// of its length, so that long and short hypotheses compare:
//
//   power  score = cum / t^a              transformers, CTranslate2
//   wu     score = cum / ((5 + t) / 6)^a  Wu et al. 2016
//
// with a = length_penalty and t the number of generated tokens. An EOS or stop
// id at the end counts among them, unless length_counts_eos is off, as in
// openai's Whisper and CTranslate2; t is at least 1. a = 0 compares sums. With
// a = 1, the power form compares means; Wu's form grows a sixth as fast, so it
// favours length less.
//
// Source: Wu et al. 2016, https://arxiv.org/abs/1609.08144, equation 14.
#pragma once

#include <algorithm>

#include "request/generation_params.h"

namespace espalier {

// Returns t of a sequence of `length` tokens, whose last one is an EOS or stop
// id that does not count if `is_last_out`.
inline int ScoredLength(int length, bool is_last_out) {
  return is_last_out ? std::max(1, length - 1) : length;
}

class LengthPenalty {
 public:
  explicit LengthPenalty(const GenerationParams& params)
      : form_(params.length_penalty_form),
        exponent_(params.length_penalty),
        counts_eos_(params.length_counts_eos) {}

  // Returns the score by t. Each operation is rounded to float32, as in
  // transformers.
  // REQUIRES: length >= 1.
  float Score(float cum_log_prob, int length) const;

  // Returns the score of a hypothesis of `length` tokens.
  //   ends_in_id  its last token is an EOS or stop id
  float FinalScore(float cum_log_prob, int length, bool ends_in_id) const {
    return Score(cum_log_prob,
                 ScoredLength(length, ends_in_id && !counts_eos_));
  }

  // True if a longer hypothesis with an equal sum has a higher score.
  bool favours_length() const { return exponent_ > 0; }

 private:
  LengthPenaltyForm form_;
  double exponent_;
  bool counts_eos_;
};

// Returns the mean log-probability, by which samples compare.
float MeanLogProb(float cum_log_prob, int length);

}  // namespace espalier
