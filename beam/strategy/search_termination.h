// SearchTermination: decides when a beam search ends although beams live, and
// how many hypotheses it keeps.
//
//   early_stopping true     ends when round(num_beams * patience) hypotheses,
//                           at least 1, are finished (Kasai et al. 2022;
//                           CTranslate2's rule). Keeps the best of them, up to
//                           the larger of that number and num_beams
//   false, "never"          keeps num_beams, and ends when this many are
//                           finished and no live beam can score higher than
//                           the worst of them: judged by the present length,
//                           or for "never" by max_new_tokens if length raises
//                           scores
//
// Patience 1 is transformers' rule. A larger patience searches longer for more
// hypotheses to choose from: hypotheses below num_beams others still count
// towards the end. A smaller one ends earlier, with fewer hypotheses.
//
// Source: Kasai et al. 2022, https://arxiv.org/abs/2204.05424.
#pragma once

#include "beam/strategy/finished_pool.h"
#include "beam/strategy/length_penalty.h"
#include "request/generation_params.h"

namespace espalier {

class SearchTermination {
 public:
  // For a search with `num_beams` beams, or a group of this many. `params` as
  // ValidateParams leaves them.
  SearchTermination(const GenerationParams& params, int num_beams);

  // Capacity of its finished pool.
  int pool_capacity() const { return pool_capacity_; }

  // True if the search ends. The best beam that could still finish has
  // `best_cum_log_prob` at `length` tokens.
  bool Ends(const FinishedPool& pool, float best_cum_log_prob,
            int length) const;

 private:
  const bool ends_when_filled_;
  const int num_needed_;
  const int pool_capacity_;
  const LengthPenalty length_penalty_;
  const int full_length_;  // length to judge scores by; 0: the present one
};

}  // namespace espalier
