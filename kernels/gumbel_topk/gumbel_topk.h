// Gumbel top-k: the m best tokens of a row by value + Gumbel noise, which is a
// sample of m without replacement from exp(value). Beam sampling and stochastic
// beams use it: selections by row with RowSelection::gumbel_top_k.
//
// The value of a token, by domain:
//
//   kLogProbs  transformers' beam sampling: edits act on the row's
//              log-probabilities (as in select.h). Values are these, divided by
//              the temperature, of tokens that the filters of sample.h keep, in
//              its order. They are not renormalised, as in transformers'
//              warpers, unless `renormalizes` is set. But the warpers keep at
//              least one token more than there are EOS ids; here only the
//              likeliest token always stays. Temperature 0: the best token
//              only, with its edited log-probability.
//   kLogits    stochastic beams: the log of the probability with which DrawRow
//              samples the token: edits act on logits, then temperature and
//              filters, renormalised. Temperature 0: the best token only, with
//              value 0.
//
// A token that a filter drops, or whose value is -inf in float32, is never
// chosen. The result may have fewer than m tokens, or none if no token is
// possible. A row with a NaN gives kNotANumber (sample.h) only, with value 0.
// Logits of +inf share all probability evenly.
//
// The noise of a token is Gumbel(GumbelKey(...), token) (gumbel.h), the same on
// every device and among any other rows. A merge of rows adds it again to rank
// candidates. Two devices may differ if two noisy scores are within the
// rounding of a value.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/gumbel_topk/gumbel.h"
#include "kernels/sample/sample.h"
#include "kernels/select/select.h"

namespace espalier {

// `rank` is that of the row's beam in its group.
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
  // Tokens whose noisy score is not above this may be dropped, because other
  // rows have enough better ones.
  double above = -std::numeric_limits<double>::infinity();
};

// Returns the best m tokens with their values (log_prob), by falling noisy
// score, value + noise in double, ties to the lower token. The values
// themselves need not fall.
//   logits  [vocab_size]  f32  host; not changed
// REQUIRES: vocab_size >= 1, num_candidates >= 1; edited tokens in
// [0, vocab_size).
std::vector<TokenScore> GumbelTopK(std::span<const float> logits,
                                   const GumbelTopKOptions& options);

// Returns the values of all tokens of a row, for reports; -inf for dropped
// tokens. Temperature 0 counts as 1 without filters here: the result has the
// values of all possible tokens, renormalised in kLogits. NaN counts as -inf.
std::vector<float> TokenValues(std::span<const float> logits,
                               GumbelTopKOptions options);

// Computes the sums that rank candidates in a merge: cum_log_prob + noise of
// each candidate of the row of beam `rank`, which has generated `position`
// tokens.
//   sums  [candidates]  out
void AddNoise(std::span<const Candidate> candidates, uint64_t seed,
              uint32_t rank, uint32_t position, std::vector<double>* sums);

// Returns the sum of a child of a stochastic beam, shifted so that the
// children's `maximum` becomes the parent's sum (Kool et al. 2019, appendix
// B.3).
// REQUIRES: noisy_score <= maximum; none is infinite or NaN.
double ShiftToMaximum(double noisy_score, double maximum, double parent);

namespace reference {

// Reference implementations: noise for all tokens, and a full sort.
std::vector<TokenScore> GumbelTopK(std::span<const float> logits,
                                   const GumbelTopKOptions& options);
std::vector<float> TokenValues(std::span<const float> logits,
                               GumbelTopKOptions options);

}  // namespace reference
}  // namespace espalier
