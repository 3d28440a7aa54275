#include "tests/beam/search_alone.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <tuple>
#include <utility>

#include "base/status.h"
#include "base/thread_pool.h"
#include "beam/strategy/allowed_sequences.h"
#include "beam/strategy/make_strategy.h"
#include "beam/strategy/selection_options.h"
#include "executor/host/select_all.h"

namespace espalier::testing {

std::vector<float> LogSoftmax(std::span<const float> logits) {
  const float max = *std::max_element(logits.begin(), logits.end());
  float sum = 0;
  for (const float logit : logits) sum += std::exp(logit - max);
  const float log_sum = std::log(sum);
  std::vector<float> log_probs;
  for (const float logit : logits) log_probs.push_back(logit - max - log_sum);
  return log_probs;
}

LanguageModel ToyLanguageModel(const ToyModelOptions& options,
                               std::vector<TokenId> prompt) {
  return [options, prompt](std::span<const TokenId> tokens) {
    std::vector<TokenId> history = prompt;
    history.insert(history.end(), tokens.begin(), tokens.end());
    std::vector<float> logits(options.vocab_size);
    ToyLogits(options, history, logits);
    return LogSoftmax(logits);
  };
}

SmallVector<Candidate> SelectBySort(
    const std::vector<std::vector<float>>& log_probs,
    std::span<const float> cum_log_probs, int num_candidates) {
  SmallVector<Candidate> candidates;
  for (size_t beam = 0; beam < log_probs.size(); ++beam) {
    for (size_t token = 0; token < log_probs[beam].size(); ++token) {
      const float cum = cum_log_probs[beam] + log_probs[beam][token];
      // NaN, where a whole row is impossible, is left out too.
      if (!(cum > -std::numeric_limits<float>::infinity())) continue;
      candidates.push_back(
          {static_cast<int>(beam), static_cast<TokenId>(token), cum});
    }
  }
  const auto key = [](const Candidate& candidate) {
    return std::tuple(-candidate.cum_log_prob, candidate.beam, candidate.token);
  };
  std::sort(
      candidates.begin(), candidates.end(),
      [&](const Candidate& a, const Candidate& b) { return key(a) < key(b); });
  if (candidates.size() > num_candidates) candidates.resize(num_candidates);
  return candidates;
}

SmallVector<Candidate> AnswerBySort(
    const PlanSelection& selection,
    const std::vector<std::vector<float>>& log_probs) {
  const bool draws = selection.kind() == SelectionKind::kDraws;
  SmallVector<Candidate> candidates = SelectBySort(
      log_probs, selection.cum_log_probs, selection.num_candidates());
  if (draws && selection.num_rows > 0 && candidates.empty()) {
    candidates.push_back({.token = kNoToken});
  }
  return candidates;
}

SmallVector<Candidate> NextCandidates(const DecodeStrategy& strategy,
                                      const LanguageModel& model) {
  PlanSelection selection;
  strategy.DescribeSelection(&selection);
  std::vector<std::vector<float>> log_probs;
  for (int rank = 0; rank < selection.num_rows; ++rank) {
    std::vector<TokenId> tokens;
    strategy.AppendTokens(rank, &tokens);
    log_probs.push_back(model(tokens));
  }
  return AnswerBySort(selection, log_probs);
}

absl::StatusOr<int> SearchAlone(const LanguageModel& model,
                                DecodeStrategy* strategy) {
  int num_steps = 0;
  for (; !strategy->done(); ++num_steps) {
    RETURN_IF_ERROR(
        strategy->Advance({.candidates = NextCandidates(*strategy, model)}));
  }
  return num_steps;
}

LogitsModel ToyLogitsModel(const ToyModelOptions& options) {
  return [options](std::span<const TokenId> history) {
    std::vector<float> logits(options.vocab_size);
    ToyLogits(options, history, logits);
    return logits;
  };
}

bool IsPlain(const PlanSelection& selection) {
  const DrawSelection* const draws = selection.as_draws();
  const bool is_greedy = draws != nullptr &&
                         selection.params->sampling.greedy() &&
                         draws->samples.size() == 1;
  return (selection.kind() == SelectionKind::kBeams || is_greedy) &&
         selection.allowed.empty();
}

SelectionResult AnswerAsTheEngine(
    PlanSelection selection, const std::vector<std::vector<float>>& logits) {
  static ThreadPool* const pool = new ThreadPool;
  std::vector<float> logits_rows;
  for (const std::vector<float>& row : logits) {
    logits_rows.insert(logits_rows.end(), row.begin(), row.end());
  }
  StepPlan plan;
  plan.num_logits = static_cast<int>(logits.size());
  selection.first_logits = 0;
  plan.selections.push_back(std::move(selection));
  const int vocab_size = static_cast<int>(logits.front().size());
  return SelectAll(plan, logits_rows, vocab_size, *pool).front();
}

SelectionResult NextAnswer(const DecodeStrategy& strategy,
                           const LogitsModel& model, const Request& request) {
  PlanSelection selection;
  strategy.DescribeSelection(&selection);
  selection.params = MakeSelectionParams(request.params);
  std::vector<std::vector<float>> logits;
  for (int rank = 0; rank < selection.num_rows; ++rank) {
    selection.histories.push_back(request.prompt_tokens);
    strategy.AppendTokens(rank, &selection.histories.back());
    logits.push_back(model(selection.histories.back()));
  }
  return AnswerAsTheEngine(std::move(selection), logits);
}

absl::StatusOr<Result> SearchAsTheEngine(
    const LogitsModel& model, const Request& request,
    std::shared_ptr<const Tokenizer> tokenizer,
    std::shared_ptr<const Constraint> constraint) {
  if (constraint == nullptr) constraint = AllowedSequencesOf(request.params);
  const std::unique_ptr<DecodeStrategy> strategy =
      MakeStrategy(request.params, std::move(constraint),
                   RequestText::Make(request.params, std::move(tokenizer)));
  Result result;
  for (; !strategy->done(); ++result.usage.num_steps) {
    RETURN_IF_ERROR(strategy->Advance(NextAnswer(*strategy, model, request)));
  }
  result.hypotheses = strategy->Hypotheses();
  result.threshold = strategy->threshold();
  return result;
}

}  // namespace espalier::testing
