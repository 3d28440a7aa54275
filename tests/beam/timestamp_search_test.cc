// The rule of timestamps in searches and samples: against exhaustive search and
// by hand over log_softmax(masked logits), with masks of the rule written out
// (tests/kernels/logits/timestamp_oracle.h). And lengths that do not count an
// EOS.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "beam/strategy/selection_options.h"
#include "tests/beam/search_alone.h"
#include "tests/few_cases.h"
#include "tests/kernels/logits/timestamp_oracle.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::LogitsModel;
using testing::MaskByRule;
using testing::SearchAsTheEngine;
using testing::StatusIs;
using testing::ToyLogitsModel;

// Text 0 and 1, the end 2, <|notimestamps|> 3, times from 4 on.
constexpr int kTimedVocabSize = 7;
constexpr TokenId kTimedEnd = 2;
constexpr TimestampParams kTimestamps = {.first_time = 4,
                                         .end = kTimedEnd,
                                         .no_timestamps = 3,
                                         .max_initial_step = 1};

Request TimestampRequest(int max_new_tokens) {
  Request request = {{1, 5}, {}};
  request.params.max_new_tokens = max_new_tokens;
  request.params.eos_token_id = {kTimedEnd};
  request.params.timestamps = kTimestamps;
  return request;
}

// log_softmax(masked logits) after `generated`, in double; -inf for banned.
std::vector<double> TimedLogProbs(const LogitsModel& model,
                                  const Request& request,
                                  const std::vector<TokenId>& generated) {
  std::vector<TokenId> history = request.prompt_tokens;
  history.insert(history.end(), generated.begin(), generated.end());
  const std::vector<float> raw = model(history);
  std::vector<double> logits(raw.begin(), raw.end());
  const GenerationParams& params = request.params;
  for (const auto& [token, bias] : params.logit_bias) logits[token] += bias;
  for (const int64_t token : params.suppress_tokens) {
    logits[token] = -HUGE_VAL;
  }
  if (params.timestamps) {
    const auto rule = *MakeSelectionParams(params)->processors.timestamps;
    logits = MaskByRule(logits, generated, rule).logits;
  }
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit);
  for (double& logit : logits) logit -= std::log(sum);
  return logits;
}

double TimedLength(const Request& request, const std::vector<TokenId>& tokens) {
  const int length = static_cast<int>(tokens.size());
  const bool leaves_out =
      !request.params.length_counts_eos && tokens.back() == kTimedEnd;
  return leaves_out ? std::max(1, length - 1) : length;
}

void EnumerateTimed(const LogitsModel& model, const Request& request,
                    const std::vector<TokenId>& prefix, double sum,
                    std::vector<Hypothesis>* all) {
  const std::vector<double> log_probs = TimedLogProbs(model, request, prefix);
  for (TokenId token = 0; token < kTimedVocabSize; ++token) {
    if (!std::isfinite(log_probs[token])) continue;
    std::vector<TokenId> tokens = prefix;
    tokens.push_back(token);
    const double next = sum + log_probs[token];
    if (token != kTimedEnd &&
        std::ssize(tokens) < *request.params.max_new_tokens) {
      EnumerateTimed(model, request, tokens, next, all);
      continue;
    }
    const double divisor =
        std::pow(TimedLength(request, tokens), request.params.length_penalty);
    all->push_back({.tokens = tokens,
                    .score = static_cast<float>(next / divisor),
                    .cum_log_prob = static_cast<float>(next)});
  }
}

// With a beam for every sequence, and a pool, the search is exhaustive.
void ExpectExhaustiveTimed(const LogitsModel& model, Request request) {
  GenerationParams& params = request.params;
  params.early_stopping = EarlyStopping::kTrue;
  std::vector<Hypothesis> all;
  EnumerateTimed(model, request, {}, 0, &all);
  std::ranges::sort(all, [](const Hypothesis& a, const Hypothesis& b) {
    return a.score > b.score;
  });
  params.num_beams = static_cast<int64_t>(all.size()) + 1;
  params.num_return_sequences = params.num_beams;
  ASSERT_OK_AND_ASSIGN(const Result result, SearchAsTheEngine(model, request));
  ASSERT_EQ(result.hypotheses.size(), all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(result.hypotheses[i].tokens, all[i].tokens) << i;
    EXPECT_NEAR(result.hypotheses[i].cum_log_prob, all[i].cum_log_prob, 2e-5);
    EXPECT_NEAR(result.hypotheses[i].score, all[i].score, 2e-5);
  }
}

TEST(TimestampSearchTest, NBestIsThatOfExhaustiveSearch) {
  for (uint64_t seed = 0; seed < testing::Cases(60, 6); ++seed) {
    const LogitsModel model =
        ToyLogitsModel({.vocab_size = kTimedVocabSize, .seed = seed});
    Request request = TimestampRequest(5);
    request.params.length_counts_eos = seed % 2 == 0;
    if (seed % 3 == 1) request.params.length_penalty = 0.5;
    if (seed % 3 == 2) request.params.suppress_tokens = {0, 6};
    if (seed % 4 == 3) request.params.logit_bias = {{1, 1.5}, {5, -0.75}};
    if (seed % 5 == 4) request.params.timestamps->after_prefix = true;
    if (seed % 7 == 6) request.params.timestamps->max_initial_step.reset();
    ExpectExhaustiveTimed(model, request);
  }
}

// As in CTranslate2 and openai: an end costs its log-probability, and no
// length.
TEST(TimestampSearchTest, AnEosThatDoesNotCountChangesTheRanks) {
  int num_changed = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const LogitsModel model =
        ToyLogitsModel({.vocab_size = kTimedVocabSize, .seed = seed});
    Request request = {{1, 5}, {}};
    request.params.max_new_tokens = 3;
    request.params.eos_token_id = {kTimedEnd};
    request.params.suppress_tokens = {3, 4, 5, 6};
    request.params.renormalize_logits = true;
    request.params.num_beams = 8;
    request.params.early_stopping = EarlyStopping::kTrue;
    ASSERT_OK_AND_ASSIGN(const Result with, SearchAsTheEngine(model, request));
    request.params.length_counts_eos = false;
    ExpectExhaustiveTimed(model, request);
    ASSERT_OK_AND_ASSIGN(const Result out, SearchAsTheEngine(model, request));
    num_changed += with.hypotheses[0].tokens != out.hypotheses[0].tokens;
  }
  EXPECT_GT(num_changed, 0);
}

// Samples and greedy tokens follow the rule, and their sums are of what it
// leaves, without temperature and filters.
void ExpectTimedSums(const LogitsModel& model, const Request& request) {
  ASSERT_OK_AND_ASSIGN(const Result result, SearchAsTheEngine(model, request));
  ASSERT_EQ(std::ssize(result.hypotheses), request.params.num_return_sequences);
  float last_score = HUGE_VALF;
  for (const Hypothesis& hypothesis : result.hypotheses) {
    double sum = 0;
    std::vector<TokenId> prefix;
    for (const TokenId token : hypothesis.tokens) {
      const std::vector<double> log_probs =
          TimedLogProbs(model, request, prefix);
      if (!request.params.do_sample) {
        EXPECT_EQ(std::ranges::max_element(log_probs) - log_probs.begin(),
                  token);
      }
      sum += log_probs[token];
      prefix.push_back(token);
    }
    EXPECT_TRUE(std::isfinite(sum));
    EXPECT_NEAR(hypothesis.cum_log_prob, sum, 2e-5);
    EXPECT_NEAR(hypothesis.score, sum / TimedLength(request, hypothesis.tokens),
                2e-5);
    EXPECT_LE(hypothesis.score, last_score);
    last_score = hypothesis.score;
  }
}

TEST(TimestampSearchTest, SamplesSumLogProbabilitiesOfWhatIsLeft) {
  for (uint64_t seed = 0; seed < testing::Cases(200, 20); ++seed) {
    const LogitsModel model =
        ToyLogitsModel({.vocab_size = kTimedVocabSize, .seed = seed});
    Request request = TimestampRequest(9);
    GenerationParams& params = request.params;
    if (seed % 3 == 0) {
      params.timestamps.reset();
      params.renormalize_logits = true;
      params.suppress_tokens = {0, 4};
    }
    params.length_counts_eos = seed % 2 == 0;
    ExpectTimedSums(model, request);
    params.do_sample = true;
    params.best_of = 5;
    params.num_return_sequences = 3;
    params.temperature = 0.4 + static_cast<double>(seed % 5) / 4;
    if (seed % 4 == 1) params.top_k = 2;
    params.seed = seed;
    ExpectTimedSums(model, request);
  }
}

// Without it sums are the model's own, whatever is banned.
TEST(TimestampSearchTest, SamplesOfOthersSumTheModelsOwn) {
  const LogitsModel model = ToyLogitsModel({.vocab_size = kTimedVocabSize});
  Request request = TimestampRequest(4);
  request.params.timestamps.reset();
  Request plain = request;
  request.params.suppress_tokens = {0, 1, 3, 4, 5};
  ASSERT_OK_AND_ASSIGN(const Result result, SearchAsTheEngine(model, request));
  const std::vector<TokenId>& tokens = result.hypotheses[0].tokens;
  double sum = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    sum += TimedLogProbs(model, plain,
                         {tokens.begin(), tokens.begin() + i})[tokens[i]];
  }
  EXPECT_NEAR(result.hypotheses[0].cum_log_prob, sum, 2e-5);
}

TEST(TimestampSearchTest, ARowWithoutALegalTokenEndsTheSearch) {
  const LogitsModel model = ToyLogitsModel({.vocab_size = kTimedVocabSize});
  Request request = TimestampRequest(4);
  request.params.suppress_tokens = {4, 5};  // the only ones that may come first
  EXPECT_THAT(SearchAsTheEngine(model, request),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       ::testing::HasSubstr("no token is possible")));
  request.params.num_beams = 3;
  EXPECT_THAT(SearchAsTheEngine(model, request),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       ::testing::HasSubstr("no token is possible")));
}

}  // namespace
}  // namespace espalier
