// Selection: chooses a group's best continuations from logits, in two steps:
//
//   SelectRow        one pass over a row of logits computes its log-sum-exp and
//                    its m best tokens; no table of log-probabilities is
//                    written;
//   MergeCandidates  ranks the tokens of a group's rows by cumulative score
//                    (merge_candidates.h).
//
// Order and ties, the same on every device:
//   - a row's tokens are chosen by score, ties to the lower token; ScoreDomain
//     defines the score and the order of the result;
//   - all arithmetic that decides is float32 with one rounding an operation:
//     log_prob = (logit - max) - log_sum.
//
// NaN counts as -inf. A token whose score is -inf is never chosen, so the
// result may have fewer than m tokens, or none. If n logits are +inf, the limit
// is taken: each of those tokens has log_prob = -log(n), every other -inf.
//
// Source: the candidate rule of transformers 5 `_beam_search`; log-softmax as
// torch computes it (subtract the maximum, then the log of the sum).
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "base/token_log_prob.h"
#include "kernels/logits/candidate.h"
#include "kernels/logits/score_processors.h"

namespace espalier {

struct RowOptions {
  ScoreDomain domain = ScoreDomain::kLogProbs;
  int num_candidates = 1;                 // m >= 1; clamped to vocab_size
  float repetition_penalty = 1.0f;        // for edits with `repeated`
  std::span<const TokenEdit> edits = {};  // ascending by token, each once
  bool is_allow_list = false;             // all other tokens are banned
  // kLogProbs only: edited scores are renormalised over the possible tokens:
  // the log-sum-exp of all is subtracted (transformers' LogitNormalization). A
  // row without edits is normalised already.
  bool renormalizes = false;
  // kLogProbs only: tokens whose sum cum_log_prob + log_prob is below min_sum
  // are dropped, because other rows have enough better ones.
  float cum_log_prob = 0;
  float min_sum = -std::numeric_limits<float>::infinity();
};

// Returns the best tokens of one row, best first, in the order of its domain.
//   logits  [vocab_size]  f32  host; not changed
// Reads the row once, 4 * vocab_size bytes, and allocates the result and a
// buffer of O(num_candidates). From 128,256 normally distributed logits the
// best 16 take 30 us of processor time (16 GiB/s), where the reference takes
// 13.9 ms, and the best 64 take 36 us: on one thread of an EPYC 9004 (Zen 4,
// AVX-512),
//   select_benchmark --benchmark_filter='SelectRow(Fast|Twin)/vocab:128256'
// The result is a pure function of the arguments on one processor: it does not
// depend on other rows, threads or the row's address.
// REQUIRES: num_candidates >= 1; edited tokens in [0, vocab_size).
std::vector<TokenScore> SelectRow(std::span<const float> logits,
                                  const RowOptions& options);

namespace reference {

// Reference implementation: a full sort, the log-sum-exp in double. A log_prob
// differs from the fast one by rounding, at most
//   2^-23 * (log(vocab_size) + 2 + |log_prob|) nats
// before a repetition penalty, which scales it. Hence in kLogProbs two tokens
// that close may swap ranks, and places at the cut if one of them is edited.
// Choice by logit agrees to the bit.
std::vector<TokenScore> SelectRow(std::span<const float> logits,
                                  const RowOptions& options);

}  // namespace reference
}  // namespace espalier
