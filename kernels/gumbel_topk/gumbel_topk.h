// Gumbel top-k: the m best tokens of a row by value + Gumbel noise, which is
// a draw of m without replacement from exp(value). Beams that are sampled, and
// stochastic beams, are made of it: PlanSelection of kRows with
// SelectionParams::gumbel_top_k.
//
// The value of a token, by domain:
//
//   kLogProbs  transformers' beam sampling: edits act on the row's
//              log-probabilities (as in select.h); these, divided by the
//              temperature, are the values of the tokens that the filters of
//              sample.h leave, in its order. Not renormalised, as transformers'
//              warpers leave it; but where those keep at least as many tokens
//              as there are EOS ids, and one, only the likeliest is sure to
//              stay here. Temperature 0: the best token alone, with its edited
//              log-probability. Where `renormalizes` is set they are
//              renormalised at the end, as in kLogits.
//   kLogits    stochastic beams: the log of the probability that DrawRow draws
//              the token with: edits act on logits, then temperature and
//              filters, renormalised. Temperature 0: the best token alone, with
//              value 0.
//
// A token that a filter puts out, or whose value is -inf in float32, is never
// chosen, so fewer than m may come back; none from a row that has no possible
// token. A row with a NaN gives kNotANumber (sample.h) alone, with value 0.
// Logits of +inf share all probability evenly.
//
// The noise of a token is Gumbel(GumbelKey(...), token) (gumbel.h), the same
// on every device and among any other rows: who merges rows adds it again to
// what it ranks by. Two devices may differ where two noisy scores lie
// within the rounding of a value.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/gumbel_topk/gumbel.h"
#include "kernels/sample/sample.h"
#include "kernels/select/select.h"

namespace espalier {

// `rank` of the row's beam in its group.
ESPALIER_HOST_DEVICE inline RandomKey GumbelKey(uint64_t seed, uint32_t rank,
                                                uint32_t position) {
  return {.seed = seed,
          .sample = rank,
          .position = position,
          .purpose = RandomPurpose::kGumbelNoise};
}

struct GumbelTopKOptions {
  ScoreDomain domain = ScoreDomain::kLogProbs;
  int num_candidates = 1;  // m >= 1; clamped to vocab_size
  DrawOptions draw = {};   // `sample` is the rank
  bool renormalizes = false;
  // Tokens may be left out whose noisy score is not above this, because
  // there are enough better ones elsewhere.
  double above = -std::numeric_limits<double>::infinity();
};

// The best m tokens with their values (log_prob), by falling noisy score,
// value + noise in double, ties to the lower token. Falling noisy scores
// are in general not falling values.
//   logits  [vocab_size]  f32  host; not changed
// REQUIRES: vocab_size >= 1, num_candidates >= 1; edited tokens in
// [0, vocab_size).
std::vector<TokenScore> GumbelTopK(std::span<const float> logits,
                                   const GumbelTopKOptions& options);

// The values of all tokens of a row, -inf of those that are out: what a choice
// is made by, for reports. Here temperature 0 is as 1 without filters: the
// values of all tokens that are possible, renormalised in kLogits. NaN counts
// as -inf.
std::vector<float> TokenValues(std::span<const float> logits,
                               GumbelTopKOptions options);

// The sums by which rows are merged: cum_log_prob + noise of each candidate of
// the row of beam `rank`, which has generated `position` tokens.
//   sums  [candidates]  out
void AddNoise(std::span<const Candidate> candidates, uint64_t seed,
              uint32_t rank, uint32_t position, std::vector<double>* sums);

// The sum of a child of a stochastic beam: where `maximum`, that of all
// children, becomes the parent's (Kool et al. 2019, appendix B.3).
// REQUIRES: noisy_score <= maximum; none is infinite or NaN.
double ShiftToMaximum(double noisy_score, double maximum, double parent);

namespace reference {

// The twins: noise for all tokens, and a full sort.
std::vector<TokenScore> GumbelTopK(std::span<const float> logits,
                                   const GumbelTopKOptions& options);
std::vector<float> TokenValues(std::span<const float> logits,
                               GumbelTopKOptions options);

}  // namespace reference
}  // namespace espalier
