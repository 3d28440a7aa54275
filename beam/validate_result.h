// ValidateResult: checks that a SelectionResult fits its PlanSelection. An
// executor may be third-party code, on another device or machine; a group takes
// from it only what the rest of the engine may rely on.
#pragma once

#include <cmath>
#include <iterator>
#include <span>

#include "absl/status/status.h"
#include "base/ids.h"
#include "exec_request/draft_tree.h"
#include "exec_request/step_plan.h"

namespace espalier {

// Checked are, as step_plan.h says of SelectionResult: how many candidates
// there are, of which rows, in which order; that each token is of the
// vocabulary and may follow its row, and stands there once unless samples drew
// it; that sums are numbers, and finite where noise is to be added; and, if
// they are reported, that log-probabilities are of these tokens. Not whether
// scores are right.
//   asked  as DecodeStrategy::DescribeSelection sets it, and the params
//   paths  of the drafts of beams, DraftTree(asked); null: it is made
// Costs O(candidates * log(tokens that may follow)).
// Errors: kInternal saying what is wrong.
absl::Status ValidateResult(const PlanSelection& asked,
                            const SelectionResult& answer, int vocab_size,
                            const DraftTree* paths = nullptr);

// Whether nothing can be wrong with an answer to draws that have no drafts, no
// lists of allowed tokens and no log-probabilities to report: it is a token for
// each of `num_samples` samples, of as many rows or of one. Costs O(samples),
// and no PlanSelection.
inline bool AreSoundDraws(const SelectionResult& answer, int num_rows,
                          int num_samples, int vocab_size) {
  const std::span<const Candidate> drawn = answer.candidates;
  if (std::ssize(drawn) != num_samples || !answer.num_tokens.empty() ||
      !answer.further.empty()) {
    return false;
  }
  for (int i = 0; i < num_samples; ++i) {
    const auto& [row, token, cum_log_prob] = drawn[i];
    const bool is_sound = row == (num_rows > 1 ? i : 0) && token >= 0 &&
                          token < vocab_size && std::isfinite(cum_log_prob);
    if (!is_sound) return false;
  }
  return true;
}

// Whether `logprobs` are of `tokens`, with at most `num_best` others each.
// Errors: as above.
absl::Status CheckLogProbs(std::span<const TokenLogProb> logprobs,
                           std::span<const TokenId> tokens, int num_best,
                           int vocab_size);

}  // namespace espalier
