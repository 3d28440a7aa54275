// Searches without pages, plans and groups: a strategy fed by a function from
// histories to log-probabilities, with selection done by a full sort.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "beam/decode_strategy.h"
#include "tests/toy_model.h"

namespace espalier::testing {

// The log-probabilities [vocab_size] of what follows the tokens.
using LanguageModel =
    std::function<std::vector<float>(std::span<const TokenId>)>;

// log_softmax in float32: subtract the maximum, then the log of the sum.
std::vector<float> LogSoftmax(std::span<const float> logits);

// ToyLogits after `prompt` and the tokens, as a language model.
LanguageModel ToyLanguageModel(const ToyModelOptions& options,
                               std::vector<TokenId> prompt);

// The best `num_candidates` of all continuations: by score, then the lower
// beam, then the lower token; none of -inf.
std::vector<Candidate> SelectBySort(
    const std::vector<std::vector<float>>& log_probs,
    std::span<const float> cum_log_probs, int num_candidates);

// The answer to a selection of beams, or of one greedy sample.
std::vector<Candidate> AnswerBySort(
    const PlanSelection& selection,
    const std::vector<std::vector<float>>& log_probs);

// The candidates of the strategy's next step.
std::vector<Candidate> NextCandidates(const DecodeStrategy& strategy,
                                      const LanguageModel& model);

// Runs `*strategy` to its end; returns how many steps it took.
// Errors: as DecodeStrategy::Advance.
absl::StatusOr<int> SearchAlone(const LanguageModel& model,
                                DecodeStrategy* strategy);

}  // namespace espalier::testing
