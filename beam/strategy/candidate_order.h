// CandidateOrder: where the candidates of a beam search come from, and how they
// rank.
//
//   best first     the best continuations of all beams, by cumulative score
//   drawing order  continuations of all beams, drawn one after the other
//                  without putting them back, each with probability
//                  proportional to exp(cumulative score): transformers' beam
//                  sampling. Those are the highest of score + Gumbel noise, in
//                  this order (kernels/gumbel_topk/gumbel.h).
//
// For drawing, rows give their own candidates, drawn within the row; the noise
// of each is computed again here, and ranks them all. The noise of a row is of
// the rank of its beam and of the step: it depends on no other request.
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

  // Whether an answer ranks as it is.
  virtual bool is_best_first() const = 0;

  // The `num_candidates` first of an answer, in their order, into `*ranked`,
  // whatever it held; `num_generated` tokens were generated before it.
  virtual void Rank(std::span<const Candidate> answer, int num_generated,
                    int num_candidates,
                    std::vector<RankedCandidate>* ranked) const = 0;
};

// The order that the request's candidates rank in.
std::unique_ptr<const CandidateOrder> MakeCandidateOrder(
    const GenerationParams& params);

}  // namespace espalier
