// Searches without pages, plans and groups: a strategy fed by a function from
// histories to log-probabilities, with selection done by a full sort.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "beam/strategy/decode_strategy.h"
#include "constrain/constraint.h"
#include "request/request.h"
#include "tests/toy_model.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier::testing {

// Returns the log-probabilities [vocab_size] of the next token.
using LanguageModel =
    std::function<std::vector<float>(std::span<const TokenId>)>;

// log_softmax in float32: subtract the maximum, then the log of the sum.
std::vector<float> LogSoftmax(std::span<const float> logits);

// ToyLogits after `prompt` and the tokens, as a language model.
LanguageModel ToyLanguageModel(const ToyModelOptions& options,
                               std::vector<TokenId> prompt);

// The best `num_candidates` of all continuations: by score, then the lower
// beam, then the lower token; none of -inf.
SmallVector<Candidate> SelectBySort(
    const std::vector<std::vector<float>>& log_probs,
    std::span<const float> cum_log_probs, int num_candidates);

// The answer to a selection of beams, or of one greedy sample.
SmallVector<Candidate> AnswerBySort(
    const PlanSelection& selection,
    const std::vector<std::vector<float>>& log_probs);

// The candidates of the strategy's next step.
SmallVector<Candidate> NextCandidates(const DecodeStrategy& strategy,
                                      const LanguageModel& model);

// Runs `*strategy` to its end; returns how many steps it took.
// Errors: as DecodeStrategy::Advance.
absl::StatusOr<int> SearchAlone(const LanguageModel& model,
                                DecodeStrategy* strategy);

// As above with every option of a request: selects as the engine does, from a
// model's logits (executor/host/select_all.h).
using LogitsModel = std::function<std::vector<float>(std::span<const TokenId>)>;

// ToyLogits after the tokens, which begin with the prompt.
LogitsModel ToyLogitsModel(const ToyModelOptions& options);

// True if AnswerBySort supports the selection: greedy, not per row, and with
// every token allowed.
bool IsPlain(const PlanSelection& selection);

// Returns the engine's result for a selection with logits [num_rows].
SelectionResult AnswerAsTheEngine(
    PlanSelection selection, const std::vector<std::vector<float>>& logits);

// The engine's answer to the next step of a strategy for `request`.
SelectionResult NextAnswer(const DecodeStrategy& strategy,
                           const LogitsModel& model, const Request& request);

// Runs `request` by its strategy.
//   constraint  null: its allowed sequences, if it has any
// Errors: as DecodeStrategy::Advance.
absl::StatusOr<Result> SearchAsTheEngine(
    const LogitsModel& model, const Request& request,
    std::shared_ptr<const Tokenizer> tokenizer = nullptr,
    std::shared_ptr<const Constraint> constraint = nullptr);

}  // namespace espalier::testing
