// MergeCandidates: the second step of selection. Ranks the tokens that
// SelectRow (select.h) found in each of a group's rows by cumulative score.
//
// Order and ties, the same on every device: (cum_log_prob, lower beam, lower
// token), where cum = cum + log_prob in float32, rounded once.
#pragma once

#include <span>
#include <vector>

#include "base/token_log_prob.h"
#include "kernels/logits/candidate.h"

namespace espalier {

// Returns the `num_candidates` best continuations, best first.
//   rows           [num_beams]  each by falling log_prob, as from SelectRow in
//                      kLogProbs. Results of kLogits are ordered by edited
//                      logit, and fit only with one token a row
//   cum_log_probs  [num_beams]  nats, of the sequences so far
// A continuation whose sum is -inf or NaN is dropped, so there may be fewer.
// Costs O((num_beams + num_candidates) * log(num_beams)).
// REQUIRES: as many sums as rows, num_candidates >= 1; rows sorted by log_prob,
// none of which is NaN.
std::vector<Candidate> MergeCandidates(
    std::span<const std::vector<TokenScore>> rows,
    std::span<const float> cum_log_probs, int num_candidates);

namespace reference {

// Reference implementation: one sort of all. Agrees to the bit
// (select_reference.cc).
std::vector<Candidate> MergeCandidates(
    std::span<const std::vector<TokenScore>> rows,
    std::span<const float> cum_log_probs, int num_candidates);

}  // namespace reference
}  // namespace espalier
