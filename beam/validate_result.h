// ValidateResult: checks that a SelectionResult fits its PlanSelection.
// Executors may be user code, on another device or machine. A group validates
// every result before it applies it.
#pragma once

#include <span>

#include "absl/status/status.h"
#include "base/ids.h"
#include "exec_request/draft_tree.h"
#include "exec_request/step_plan.h"

namespace espalier {

// Checks the contract of SelectionResult in step_plan.h: number, rows and order
// of candidates; that each token is in the vocabulary, may follow its row, and
// occurs once unless it was sampled; that sums are numbers, and finite if noise
// is added to them; and that reported log-probabilities belong to these tokens.
// Does not check the values of scores.
//   asked  as set by DecodeStrategy::DescribeSelection, with the params
//   paths  DraftTree(asked) for drafts of beams; null: it is built here
// Costs O(candidates * log(tokens that may follow)).
// Errors: kInternal saying what is wrong.
absl::Status ValidateResult(const PlanSelection& asked,
                            const SelectionResult& answer, int vocab_size,
                            const DraftTree* paths = nullptr);

// Checks that `logprobs` belong to `tokens`, with at most `num_best` other
// tokens each. Errors: as above.
absl::Status CheckLogProbs(std::span<const TokenLogProb> logprobs,
                           std::span<const TokenId> tokens, int num_best,
                           int vocab_size);

}  // namespace espalier
