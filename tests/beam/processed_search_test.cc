// Biases and penalties act on log-probabilities in a beam search and show in
// its scores: against exhaustive search that applies them by their definition.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <vector>

#include "beam/strategy/length_penalty.h"
#include "tests/beam/search_alone.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::LogitsModel;
using testing::SearchAsTheEngine;
using testing::ToyLogitsModel;

constexpr int kNumLetters = 4;
constexpr int kMaxLetters = 4;

// The scores of what may follow, by the rules of docs/request_format.md.
std::vector<float> Processed(const LogitsModel& model, const Request& request,
                             const std::vector<TokenId>& generated) {
  const GenerationParams& params = request.params;
  std::vector<TokenId> history = request.prompt_tokens;
  history.insert(history.end(), generated.begin(), generated.end());
  std::vector<float> scores = testing::LogSoftmax(model(history));
  for (const auto& [token, bias] : params.logit_bias) {
    scores[token] += static_cast<float>(bias);
  }
  for (TokenId token = 0; token < kNumLetters; ++token) {
    float& score = scores[token];
    if (std::ranges::count(history, token) > 0) {
      const float penalty = static_cast<float>(params.repetition_penalty);
      score = score < 0 ? score * penalty : score / penalty;
    }
    const auto count = std::ranges::count(generated, token);
    score -= static_cast<float>(params.frequency_penalty * count +
                                (count > 0 ? params.presence_penalty : 0));
  }
  return scores;
}

void Enumerate(const LogitsModel& model, const Request& request,
               const Hypothesis& prefix, std::vector<Hypothesis>* all) {
  const std::vector<int64_t>& eos = *request.params.eos_token_id;
  const std::vector<float> scores = Processed(model, request, prefix.tokens);
  for (TokenId token = 0; token < kNumLetters; ++token) {
    Hypothesis next = prefix;
    next.tokens.push_back(token);
    next.cum_log_prob += scores[token];
    const int length = static_cast<int>(next.tokens.size());
    if (std::ranges::count(eos, token) == 0 && length < kMaxLetters) {
      Enumerate(model, request, next, all);
      continue;
    }
    next.score = LengthPenalty(request.params).Score(next.cum_log_prob, length);
    all->push_back(next);
  }
}

using Set = std::function<void(GenerationParams*)>;

class ProcessedSearchTest : public ::testing::TestWithParam<Set> {};

// With a beam for every sequence, and a pool, the search is exhaustive.
TEST_P(ProcessedSearchTest, NBestIsThatOfExhaustiveSearch) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Request request = {{1, 3}, {}};
    GenerationParams& params = request.params;
    params.max_new_tokens = kMaxLetters;
    params.eos_token_id = {0};
    params.early_stopping = EarlyStopping::kTrue;
    GetParam()(&params);
    const LogitsModel model =
        ToyLogitsModel({.vocab_size = kNumLetters, .seed = seed});
    std::vector<Hypothesis> all;
    Enumerate(model, request, {}, &all);
    std::ranges::sort(all, [](const Hypothesis& a, const Hypothesis& b) {
      return a.score > b.score;
    });
    params.num_beams = static_cast<int64_t>(all.size()) + 1;
    params.num_return_sequences = params.num_beams;
    ASSERT_OK_AND_ASSIGN(const Result result,
                         SearchAsTheEngine(model, request));
    ASSERT_EQ(result.hypotheses.size(), all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(result.hypotheses[i].tokens, all[i].tokens);
      EXPECT_NEAR(result.hypotheses[i].cum_log_prob, all[i].cum_log_prob, 1e-5);
      EXPECT_NEAR(result.hypotheses[i].score, all[i].score, 1e-5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Processors, ProcessedSearchTest,
    ::testing::Values(
        [](GenerationParams*) {},
        [](GenerationParams* params) {
          params->logit_bias = {{1, 0.75}, {3, -1.5}};
        },
        [](GenerationParams* params) { params->frequency_penalty = 0.6; },
        [](GenerationParams* params) { params->presence_penalty = -0.4; },
        [](GenerationParams* params) { params->repetition_penalty = 1.4; },
        [](GenerationParams* params) {
          params->eos_token_id = {0, 2};
        },
        [](GenerationParams* params) {
          params->logit_bias = {{0, -2.0}, {2, 2.5}};
          params->repetition_penalty = 0.8;
          params->frequency_penalty = 0.3;
          params->presence_penalty = 0.2;
          params->length_penalty = 0.5;
          params->eos_token_id = {0, 3};
        }));

}  // namespace
}  // namespace espalier
