#include "tests/beam/search_alone.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

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

std::vector<Candidate> SelectBySort(
    const std::vector<std::vector<float>>& log_probs,
    std::span<const float> cum_log_probs, int num_candidates) {
  std::vector<Candidate> candidates;
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

std::vector<Candidate> AnswerBySort(
    const PlanSelection& selection,
    const std::vector<std::vector<float>>& log_probs) {
  std::vector<Candidate> candidates = SelectBySort(
      log_probs, selection.cum_log_probs, selection.num_candidates);
  if (!selection.samples.empty() && selection.num_rows > 0 &&
      candidates.empty()) {
    candidates.push_back({.token = kNoToken});
  }
  return candidates;
}

std::vector<Candidate> NextCandidates(const DecodeStrategy& strategy,
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
    const auto beams =
        strategy->Advance({.candidates = NextCandidates(*strategy, model)});
    if (!beams.ok()) return beams.status();
  }
  return num_steps;
}

}  // namespace espalier::testing
