// ValidateResult: checks that a SelectionResult fits its PlanSelection. An
// executor may be third-party code, on another device or machine; a group takes
// from it only what the rest of the engine may rely on.
#pragma once

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

// Whether `logprobs` are of `tokens`, with at most `num_best` others each.
// Errors: as above.
absl::Status CheckLogProbs(std::span<const TokenLogProb> logprobs,
                           std::span<const TokenId> tokens, int num_best,
                           int vocab_size);

}  // namespace espalier
