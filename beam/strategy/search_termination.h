// SearchTermination: when a beam search is over although beams live, and how
// many hypotheses it keeps until then.
//
//   early_stopping true     over when round(num_beams * patience) hypotheses,
//                           at least 1, are finished (Kasai et al. 2022;
//                           CTranslate2's rule). It keeps the best of them, at
//                           most that many or num_beams, whichever is more
//   false, "never"          it keeps num_beams, and is over when so many are
//                           finished and none that lives can score higher than
//                           the worst of them: judged by the present length,
//                           or for "never" by max_new_tokens where length
//                           raises scores
//
// Patience 1 is transformers' rule. More of it searches on, to have more to
// choose from: hypotheses worse than num_beams others still count towards the
// end. Less of it ends earlier, with fewer hypotheses.
//
// Source: Kasai et al. 2022, https://arxiv.org/abs/2204.05424.
#pragma once

#include "beam/strategy/finished_pool.h"
#include "beam/strategy/length_penalty.h"
#include "request/generation_params.h"

namespace espalier {

class SearchTermination {
 public:
  // For a search by `num_beams` beams, which are those of a group where there
  // are groups. `params` as ValidateParams leaves them.
  SearchTermination(const GenerationParams& params, int num_beams);

  // Of its finished pool.
  int pool_capacity() const { return pool_capacity_; }

  // Whether the search is over. The best that could still finish sums to
  // `best_cum_log_prob` with `length` tokens.
  bool Ends(const FinishedPool& pool, float best_cum_log_prob,
            int length) const;

 private:
  const bool ends_when_filled_;
  const int num_needed_;
  const int pool_capacity_;
  const LengthPenalty length_penalty_;
  const int full_length_;  // that scores are judged by; 0: the present one
};

}  // namespace espalier
