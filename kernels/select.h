// Selection: logits in, a group's best continuations out. Two steps:
//
//   SelectRow        one pass over a row of logits gives its log-sum-exp and
//                    its m best tokens together; no table of
//                    log-probabilities is ever written;
//   MergeCandidates  ranks the tokens of a group's rows on cumulative score.
//
// Order and ties, the same on every device:
//   - a row's tokens are chosen by score, ties to the lower token;
//   - candidates are ranked by (cum_log_prob, lower beam, lower token), and
//     all arithmetic that decides is float32 with one rounding an operation:
//     log_prob = (logit - max) - log_sum, cum = cum + log_prob.
// NaN counts as -inf. A token whose score is -inf is never chosen, so fewer
// than m may come back.
//
// Source: the candidate rule of transformers 5 `_beam_search`; log-softmax as
// torch computes it (subtract the maximum, then the log of the sum).
#pragma once

#include <span>
#include <vector>

#include "base/ids.h"
#include "kernels/score_processors.h"

namespace espalier {

// What edits act on, and what the choice is by.
enum class ScoreDomain {
  kLogProbs,  // beam search: log-probabilities; cum includes the edits
  kLogits,    // greedy and sampling: logits; cum sums the model's own
              // log-probabilities, so edits show only in the choice
};

// One token of a row.
struct TokenScore {
  TokenId token = 0;
  float log_prob = 0;  // nats; after edits in kLogProbs, before in kLogits
  friend bool operator==(const TokenScore&, const TokenScore&) = default;
};

// One continuation of a group.
struct Candidate {
  int beam = 0;  // index of the row within its group
  TokenId token = 0;
  float cum_log_prob = 0;  // nats; of the sequence including `token`
  friend bool operator==(const Candidate&, const Candidate&) = default;
};

struct RowOptions {
  ScoreDomain domain = ScoreDomain::kLogProbs;
  int num_candidates = 1;            // m >= 1; clamped to vocab_size
  float repetition_penalty = 1.0f;   // of edits that are not bans
  std::span<const TokenEdit> edits;  // sorted by token, each once
};

// The best tokens of one row, best first.
//   logits  [vocab_size]  f32  host; not changed
// The choice is by score; in kLogits by edited logit, while log_prob is that
// of the raw logit. Reads the row once, 4 * vocab_size bytes, and allocates
// only the result. The result is a pure function of the arguments: it does not
// depend on other rows or on threads.
std::vector<TokenScore> SelectRow(std::span<const float> logits,
                                  const RowOptions& options);

// The `num_candidates` best continuations, best first.
//   rows           [num_beams]  each best first, as SelectRow gives them
//   cum_log_probs  [num_beams]  nats, of the sequences so far
std::vector<Candidate> MergeCandidates(
    std::span<const std::vector<TokenScore>> rows,
    std::span<const float> cum_log_probs, int num_candidates);

namespace reference {

// The twins: full sorts, the log-sum-exp in double. Scores differ from the
// fast form by float32 rounding of the log-sum-exp only.
std::vector<TokenScore> SelectRow(std::span<const float> logits,
                                  const RowOptions& options);
std::vector<Candidate> MergeCandidates(
    std::span<const std::vector<TokenScore>> rows,
    std::span<const float> cum_log_probs, int num_candidates);

}  // namespace reference
}  // namespace espalier
