// CandidateOrder: the source and the ranking of a beam search's candidates.
//
//   best first     the best continuations of all beams, by cumulative score
//   drawing order  continuations of all beams, sampled one after the other
//                  without replacement, each with probability proportional to
//                  exp(cumulative score): transformers' beam sampling. They are
//                  the highest by score + Gumbel noise, in this order
//                  (kernels/gumbel_topk/gumbel.h).
//
// For drawing order, rows give their own candidates, sampled within the row.
// The noise of each is recomputed here and ranks them all. The noise of a row
// depends on the rank of its beam and the step, but on no other request.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "beam/strategy/beam_frontier.h"
#include "request/generation_params.h"

namespace espalier {

class CandidateOrder {
 public:
  virtual ~CandidateOrder() = default;

  // True if a result is in ranking order already.
  virtual bool is_best_first() const = 0;

  // Writes the first `num_candidates` of a result, in ranking order, to
  // `*ranked`, overwriting it. `num_generated` tokens were generated before the
  // result.
  virtual void Rank(std::span<const Candidate> answer, int num_generated,
                    int num_candidates,
                    std::vector<RankedCandidate>* ranked) const = 0;
};

// Returns the ranking of the request's candidates.
std::unique_ptr<const CandidateOrder> MakeCandidateOrder(
    const GenerationParams& params);

}  // namespace espalier
