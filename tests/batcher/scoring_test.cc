// Requests that only score: continuations of a prompt, or the prompt alone, up
// to the end of the context. Compared with a full sort of the model's logits,
// alone and beside requests that generate, in pools that are too small.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "batcher/scheduler/scheduler.h"
#include "kernels/logprobs/logprobs.h"
#include "tests/batcher/toy_requests.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Continuations = std::vector<std::vector<int64_t>>;

Request Scoring(std::vector<TokenId> prompt, Continuations continuations) {
  Request request{std::move(prompt), {}};
  request.continuations = std::move(continuations);
  return request;
}

Request PromptAlone(std::vector<TokenId> prompt) {
  Request request{std::move(prompt), {}};
  request.params.max_new_tokens = 0;
  request.params.prompt_logprobs = 0;
  return request;
}

// Returns the score by ToyLogits, by a full sort.
ContinuationScore Expected(const ToyModelOptions& options,
                           std::vector<TokenId> history,
                           const std::vector<int64_t>& tokens) {
  ContinuationScore score;
  std::vector<float> logits(options.vocab_size);
  for (const int64_t id : tokens) {
    const TokenId token = static_cast<TokenId>(id);
    ToyLogits(options, history, logits);
    const RowLogProbs row =
        reference::LogProbsOfRow(logits, std::span(&token, 1), 1);
    score.log_probs.push_back(row.tokens[0].log_prob);
    score.ranks.push_back(row.tokens[0].rank);
    score.is_greedy =
        score.is_greedy && !row.best.empty() && row.best[0].token == token;
    history.push_back(token);
  }
  return score;
}

void ExpectScore(const ContinuationScore& expected,
                 const ContinuationScore& score) {
  ASSERT_EQ(score.log_probs.size(), expected.log_probs.size());
  double sum = 0;
  for (size_t i = 0; i < score.log_probs.size(); ++i) {
    if (score.log_probs[i] != expected.log_probs[i]) {
      EXPECT_NEAR(score.log_probs[i], expected.log_probs[i], 1e-5);
    }
    sum += score.log_probs[i];
  }
  EXPECT_EQ(score.cum_log_prob, sum);
  EXPECT_EQ(score.ranks, expected.ranks);
  EXPECT_EQ(score.is_greedy, expected.is_greedy);
}

// Few different tokens give equal continuations, common prefixes and branches.
Continuations AnyContinuations(std::mt19937& random, int vocab_size) {
  Continuations continuations(1 + random() % (random() % 4 == 0 ? 60 : 6));
  const int width = 1 + static_cast<int>(random() % vocab_size);
  const int length = 1 + static_cast<int>(random() % 9);
  for (std::vector<int64_t>& tokens : continuations) {
    tokens.resize(1 + random() % length);
    for (int64_t& token : tokens) token = random() % width;
  }
  return continuations;
}

Request AnyScoring(std::mt19937& random, const ModelDescription& model) {
  std::vector<TokenId> prompt(1 + random() % 20);
  for (TokenId& token : prompt) token = random() % model.vocab_size;
  Request request =
      random() % 5 == 0
          ? PromptAlone(prompt)
          : Scoring(prompt, AnyContinuations(random, model.vocab_size));
  if (random() % 4 == 0) request.params.prompt_logprobs = random() % 3;
  if (request.params.prompt_logprobs && random() % 2 == 0) {
    request.params.logprobs_start = random() % (prompt.size() + 1);
  }
  request.params.prefix_cache = random() % 6 != 0;
  EXPECT_OK(ValidateRequest(model, &request));
  return request;
}

// Tokens that are fed: those of the prompt, and beginnings of continuations,
// each once, that something follows.
int64_t NumFed(const Request& request) {
  std::set<std::vector<int64_t>> beginnings;
  for (std::vector<int64_t> tokens : request.continuations) {
    for (tokens.pop_back(); !tokens.empty(); tokens.pop_back()) {
      beginnings.insert(tokens);
    }
  }
  return std::ssize(request.prompt_tokens) + std::ssize(beginnings);
}

ToyModelOptions AnyToy(std::mt19937& random) {
  ToyModelOptions options;
  options.seed = random();
  options.vocab_size = 4 + static_cast<int>(random() % 20);
  options.impossible_percent = random() % 3 == 0 ? 20 : 0;
  options.page_size = 1 + static_cast<int>(random() % 8);
  options.num_pages = 2000;
  options.has_shareable_pages = true;
  return options;
}

TEST(ScoringTest, EveryTokenIsWhatASortOfTheModelsRowSays) {
  for (uint32_t seed = 0; seed < Cases(150, 30); ++seed) {
    std::mt19937 random(seed);
    const ToyModelOptions options = AnyToy(random);
    const Request request = AnyScoring(random, ToyModel(options).description());
    ASSERT_OK_AND_ASSIGN(const Result result, RunAlone(options, request));
    ASSERT_EQ(result.continuations.size(), request.continuations.size());
    for (size_t i = 0; i < request.continuations.size(); ++i) {
      ExpectScore(
          Expected(options, request.prompt_tokens, request.continuations[i]),
          result.continuations[i]);
    }
    EXPECT_THAT(result.hypotheses,
                SizeIs(request.continuations.empty() ? 1 : 0));
  }
}

// Greedy is the lowest of the tokens of the highest logit, as greedy search is.
TEST(ScoringTest, TheOneThatGreedySearchGeneratesIsGreedy) {
  for (uint32_t seed = 0; seed < Cases(60, 10); ++seed) {
    std::mt19937 random(seed);
    ToyModelOptions options = AnyToy(random);
    options.eos_token_ids = {};
    Request greedy{{1, 2, 3}, {}};
    greedy.params.max_new_tokens = 6;
    ASSERT_OK(ValidateRequest(ToyModel(options).description(), &greedy));
    ASSERT_OK_AND_ASSIGN(const Result generated, RunAlone(options, greedy));
    const std::vector<TokenId>& best = generated.hypotheses[0].tokens;
    Continuations continuations = AnyContinuations(random, options.vocab_size);
    continuations.emplace_back(best.begin(), best.end());
    Request request = Scoring({1, 2, 3}, continuations);
    ASSERT_OK(ValidateRequest(ToyModel(options).description(), &request));
    ASSERT_OK_AND_ASSIGN(const Result result, RunAlone(options, request));
    for (size_t i = 0; i < continuations.size(); ++i) {
      const std::vector<TokenId> tokens(continuations[i].begin(),
                                        continuations[i].end());
      EXPECT_EQ(result.continuations[i].is_greedy,
                tokens.size() <= best.size() &&
                    std::equal(tokens.begin(), tokens.end(), best.begin()));
    }
  }
}

TEST(ScoringTest, LogProbsAndRanksAreThoseOfAPromptToTheBit) {
  for (uint32_t seed = 0; seed < Cases(60, 10); ++seed) {
    std::mt19937 random(seed);
    const ToyModelOptions options = AnyToy(random);
    const ModelDescription model = ToyModel(options).description();
    const Continuations continuations =
        AnyContinuations(random, options.vocab_size);
    Request request = Scoring({1, 2, 3}, continuations);
    ASSERT_OK(ValidateRequest(model, &request));
    ASSERT_OK_AND_ASSIGN(const Result result, RunAlone(options, request));
    for (size_t i = 0; i < continuations.size(); ++i) {
      std::vector<TokenId> whole = {1, 2, 3};
      whole.insert(whole.end(), continuations[i].begin(),
                   continuations[i].end());
      Request echo = PromptAlone(whole);
      echo.params.logprobs_start = 3;
      ASSERT_OK(ValidateRequest(model, &echo));
      ASSERT_OK_AND_ASSIGN(const Result echoed, RunAlone(options, echo));
      std::vector<float> log_probs;
      std::vector<int> ranks;
      for (const TokenLogProb& token : *echoed.prompt_logprobs) {
        log_probs.push_back(token.log_prob);
        ranks.push_back(token.rank);
      }
      EXPECT_EQ(result.continuations[i].log_probs, log_probs);
      EXPECT_EQ(result.continuations[i].ranks, ranks);
    }
  }
}

bool SameScores(const Result& a, const Result& b) {
  return std::equal(
      a.continuations.begin(), a.continuations.end(), b.continuations.begin(),
      b.continuations.end(),
      [](const ContinuationScore& one, const ContinuationScore& other) {
        return one.log_probs == other.log_probs && one.ranks == other.ranks &&
               one.is_greedy == other.is_greedy;
      });
}

TEST(ScoringTest, InAnyMixtureAndAnyPoolItIsAsAlone) {
  int num_preemptions = 0;
  int num_cached = 0;
  int num_saved = 0;
  for (uint32_t seed = 0; seed < Cases(200, 60); ++seed) {
    std::mt19937 random(100 + seed);
    ToyModelOptions options = AnyToy(random);
    if (random() % 3 == 0) options.num_host_slots = 20;
    const ModelDescription roomy = ToyModel(options).description();
    std::vector<Request> requests;
    for (int i = 0; i < 10; ++i) {
      requests.push_back(random() % 2 == 0 ? AnyScoring(random, roomy)
                                           : RandomRequest(random, roomy));
    }
    if (random() % 2 == 0) {
      for (Request& request : requests) request.prompt_tokens = {1, 2, 3, 1, 2};
      for (Request& request : requests) request.params.logprobs_start = 0;
    }
    std::vector<absl::StatusOr<Result>> alone;
    int64_t widest = 1;
    for (const Request& request : requests) {
      alone.push_back(RunAlone(options, request));
      widest =
          std::max(widest, GroupPages::WorstCase(request, options.page_size));
    }
    ToyModelOptions tight = options;
    tight.num_pages = static_cast<int>(widest + random() % (2 * widest));
    tight.limits.max_beams = 60 + static_cast<int>(random() % 8);
    tight.limits.max_prefill_rows = 1 + static_cast<int>(random() % 5);
    tight.limits.max_step_tokens = 70 + static_cast<int>(random() % 20);
    ToyModel model(tight);
    Scheduler scheduler(model.description(),
                        {.max_step_tokens = random() % 2 == 0 ? 8 : 500,
                         .validate_steps = true},
                        /*async_scheduling=*/true);
    std::vector<absl::StatusOr<Result>> results(requests.size(),
                                                absl::UnknownError(""));
    RunToEnd(
        scheduler, model,
        [&](int step) {
          if (step % 2 == 1 || step / 2 >= std::ssize(requests)) return;
          const int i = step / 2;
          scheduler.Submit(
              RequestId{i}, PreparedRequest(requests[i]),
              [&results, i](auto result) { results[i] = std::move(result); });
        },
        1 + static_cast<int>(random() % 2));
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_EQ(results[i].ok(), alone[i].ok())
          << seed << " " << i << " " << results[i].status();
      if (!results[i].ok()) continue;
      EXPECT_TRUE(SameHypotheses(*results[i], *alone[i])) << seed << " " << i;
      EXPECT_TRUE(SameScores(*results[i], *alone[i])) << seed << " " << i;
    }
    ExpectNothingHeld(scheduler);
    num_preemptions += scheduler.stats().num_preemptions;
    num_cached += scheduler.stats().num_cached_tokens;
    num_saved += scheduler.stats().num_swapped_pages_out;
  }
  EXPECT_GT(num_preemptions, 0);
  EXPECT_GT(num_cached, 0);
  EXPECT_GT(num_saved, 0);
}

// Beams that decode leave too few rows of logits, and others follow them.
TEST(ScoringTest, EndsBesideRequestsThatLeaveNoRowsOfLogits) {
  for (const int num_labels : {2, 7, 8}) {
    for (const int num_prompt_tokens : {3, 40}) {
      ToyModelOptions options;
      options.vocab_size = 20;
      options.num_pages = 2000;
      options.limits.max_beams = 8;
      options.limits.max_step_tokens = 12;
      Continuations labels;
      for (int i = 0; i < num_labels; ++i) labels.push_back({i});
      Request scoring =
          Scoring(std::vector<TokenId>(num_prompt_tokens, 1), labels);
      ToyModel model(options);
      Request decodes = LongRequest(35);
      ASSERT_OK(ValidateRequest(model.description(), &scoring));
      ASSERT_OK(ValidateRequest(model.description(), &decodes));
      ASSERT_OK_AND_ASSIGN(const Result alone, RunAlone(options, scoring));
      Scheduler scheduler(model.description(), {.validate_steps = true});
      constexpr int kNumSteps = 300;
      int step = 0;
      int ended_at = kNumSteps;
      std::optional<absl::StatusOr<Result>> result;
      RunToEnd(scheduler, model, [&](int) {
        if (step < kNumSteps && step % 5 == 0) {
          scheduler.Submit(RequestId{step}, PreparedRequest(decodes),
                           [](auto) {});
        }
        if (step == 50) {
          scheduler.Submit(RequestId{kNumSteps}, PreparedRequest(scoring),
                           [&](auto scored) {
                             result = std::move(scored);
                             ended_at = step;
                           });
        }
        ++step;
      });
      ASSERT_TRUE(result.has_value());
      ASSERT_OK(*result);
      EXPECT_TRUE(SameScores(**result, alone));
      EXPECT_LT(ended_at, 200) << num_labels << " " << num_prompt_tokens;
    }
  }
}

// Runs one request, and returns the scheduler's statistics.
SchedulerStats RunAndCount(const ToyModelOptions& options,
                           const SchedulerOptions& scheduling,
                           Request request) {
  ToyModel model(options);
  EXPECT_OK(ValidateRequest(model.description(), &request));
  Scheduler scheduler(model.description(), scheduling);
  absl::StatusOr<Result> answer;
  scheduler.Submit(RequestId{1}, PreparedRequest(request),
                   [&](auto result) { answer = std::move(result); });
  RunToEnd(scheduler, model);
  EXPECT_OK(answer);
  return scheduler.stats();
}

TEST(ScoringTest, WhatContinuationsShareIsFedOnceAndTheirLastTokenNever) {
  for (uint32_t seed = 0; seed < Cases(100, 20); ++seed) {
    std::mt19937 random(500 + seed);
    const ToyModelOptions options = AnyToy(random);
    const Request request =
        Scoring({1, 2, 3, 1}, AnyContinuations(random, options.vocab_size));
    for (const int max_step_tokens : {1, 5, 500}) {
      const SchedulerStats stats =
          RunAndCount(options, {.max_step_tokens = max_step_tokens}, request);
      EXPECT_EQ(stats.num_prompt_tokens, NumFed(request)) << seed;
    }
  }
}

TEST(ScoringTest, ContinuationsThatShareNothingRunInOneStep) {
  ToyModelOptions options = {.vocab_size = 100, .has_shareable_pages = true};
  Continuations continuations;
  for (int i = 0; i < 50; ++i) continuations.push_back({i, 1, 2});
  const SchedulerStats stats = RunAndCount(options, {.max_step_tokens = 500},
                                           Scoring({1, 2, 3}, continuations));
  EXPECT_EQ(stats.num_steps, 2);
}

TEST(ScoringTest, TenThousandContinuations) {
  ToyModelOptions options = {.vocab_size = 120, .has_shareable_pages = true};
  Continuations continuations;
  for (int i = 0; i < 10000; ++i) {
    continuations.push_back({i % 100, i / 100, (7 * i) % 120});
  }
  Request request = Scoring({1, 2, 3}, continuations);
  ASSERT_OK(ValidateRequest(ToyModel(options).description(), &request));
  ASSERT_OK_AND_ASSIGN(const Result result, RunAlone(options, request));
  ASSERT_THAT(result.continuations, SizeIs(10000));
  for (const int i : {0, 1, 99, 100, 5678, 9999}) {
    ExpectScore(Expected(options, {1, 2, 3}, continuations[i]),
                result.continuations[i]);
  }
}

// Every position of the context is fed, and none beyond.
TEST(ScoringTest, APromptAsLongAsTheContextIsScored) {
  ToyModelOptions options = {.max_context = 12, .has_shareable_pages = true};
  const std::vector<TokenId> prompt = {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6};
  const ModelDescription model = ToyModel(options).description();
  Request whole = PromptAlone(prompt);
  ASSERT_OK(ValidateRequest(model, &whole));
  ASSERT_OK_AND_ASSIGN(const Result echoed, RunAlone(options, whole));
  EXPECT_THAT(*echoed.prompt_logprobs, SizeIs(11));
  ASSERT_THAT(echoed.hypotheses, SizeIs(1));
  EXPECT_THAT(echoed.hypotheses[0].tokens, IsEmpty());

  Request request = Scoring({1, 2, 3, 4, 5, 6}, {{1, 2, 3, 4, 5, 6}});
  ASSERT_OK(ValidateRequest(model, &request));
  ASSERT_OK_AND_ASSIGN(const Result result, RunAlone(options, request));
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(result.continuations[0].log_probs[i],
              echoed.prompt_logprobs->at(5 + i).log_prob);
  }
}

TEST(ScoringTest, OfAPromptOfOneTokenThereIsNothingToScore) {
  const ToyModelOptions options;
  Request request = PromptAlone({1});
  ASSERT_OK(ValidateRequest(ToyModel(options).description(), &request));
  ASSERT_OK_AND_ASSIGN(const Result result, RunAlone(options, request));
  EXPECT_THAT(*result.prompt_logprobs, IsEmpty());
}

// Pages before logprobs_start come from the prefix cache; without it all of the
// prompt is fed.
TEST(ScoringTest, WhatIsBeforeLogprobsStartIsShared) {
  ToyModelOptions options;
  options.has_shareable_pages = true;
  options.page_size = 4;
  ToyModel model(options);
  Scheduler scheduler(model.description(), {.validate_steps = true});
  const std::vector<TokenId> prompt(30, 1);
  std::vector<Result> results;
  for (const int64_t start : {0, 30, 21, 20, 1}) {
    Request request = PromptAlone(prompt);
    request.params.logprobs_start = start;
    ASSERT_OK(ValidateRequest(model.description(), &request));
    scheduler.Submit(RequestId{start}, PreparedRequest(request),
                     [&](absl::StatusOr<Result> result) {
                       ASSERT_OK(result);
                       results.push_back(*std::move(result));
                     });
    RunToEnd(scheduler, model);
  }
  ASSERT_THAT(results, SizeIs(5));
  const std::vector<TokenLogProb>& all = *results[0].prompt_logprobs;
  std::vector<int64_t> num_cached;
  for (const Result& result : results) {
    num_cached.push_back(result.usage.num_cached_tokens);
    const std::vector<TokenLogProb>& part = *result.prompt_logprobs;
    EXPECT_TRUE(std::equal(part.begin(), part.end(), all.end() - part.size()));
  }
  EXPECT_THAT(num_cached, ElementsAre(0, 28, 20, 19, 0));
  EXPECT_THAT(*results[1].prompt_logprobs, IsEmpty());
  EXPECT_THAT(*results[2].prompt_logprobs, SizeIs(9));
}

TEST(ScoringTest, WrongOnesAreRefusedByName) {
  ToyModelOptions options = {.max_context = 10, .has_shareable_pages = true};
  const ModelDescription model = ToyModel(options).description();
  const auto error_of = [&](Request request) {
    return std::string(ValidateRequest(model, &request).message());
  };
  EXPECT_EQ(error_of(Scoring({1}, {{1}, {}})),
            "continuations[1] must not be empty, got []");
  EXPECT_EQ(error_of(Scoring({1}, {{1}, {2, 11}})),
            "continuations[1][1] must be a token id in [0, 11), got 11");
  EXPECT_EQ(error_of(Scoring({1}, {{-1}})),
            "continuations[0][0] must be a token id in [0, 11), got -1");
  EXPECT_EQ(error_of(Scoring({1, 2, 3, 4, 5, 6, 7, 8}, {{1, 2}, {1, 2, 3}})),
            "continuations[1] must have at most 2 tokens (a context of 10 less "
            "8 before it), got 3");
  EXPECT_THAT(error_of(Scoring({1, 2, 3, 4, 5, 6, 7, 8, 9, 1}, {{1}})),
              HasSubstr("leaves no room in the model's context of 10"));
  EXPECT_EQ(
      error_of(Scoring({1}, {std::vector<int64_t>(kMaxScoredTokens + 1, 1)})),
      "continuations must have at most 1048576 tokens together, got 1048577");
  Request beams = Scoring({1}, {{1}});
  beams.params.num_beams = 2;
  EXPECT_THAT(error_of(beams), HasSubstr("must be unset with continuations"));
  Request longer = Scoring({1}, {{1}});
  longer.params.max_new_tokens = 3;
  EXPECT_EQ(error_of(longer),
            "max_new_tokens must be unset with continuations, got 3");
  Request nothing{{1, 2}, {}};
  nothing.params.max_new_tokens = 0;
  EXPECT_EQ(error_of(nothing), "max_new_tokens must be at least 1, got 0");
  Request late = PromptAlone({1, 2, 3});
  late.params.logprobs_start = 4;
  EXPECT_THAT(error_of(late), HasSubstr("logprobs_start must be at most 3"));
  late.params.prompt_logprobs.reset();
  late.params.max_new_tokens = 1;
  EXPECT_EQ(error_of(late),
            "logprobs_start must be 0 without prompt_logprobs, got 4");
}

TEST(ScoringTest, MoreTokensAtOnePlaceThanAStepScoresAreRefusedForGood) {
  ToyModelOptions options = {.has_shareable_pages = true};
  options.limits.max_scored_at_once = 3;
  ToyModel model(options);
  const auto run = [&](Continuations continuations) {
    Request request = Scoring({1}, std::move(continuations));
    EXPECT_OK(ValidateRequest(model.description(), &request));
    Scheduler scheduler(model.description(), {});
    absl::StatusOr<Result> answer;
    scheduler.Submit(RequestId{1}, PreparedRequest(request),
                     [&](auto result) { answer = std::move(result); });
    RunToEnd(scheduler, model);
    return answer.status();
  };
  EXPECT_OK(run({{1}, {2}, {3}, {1, 4}, {1, 5}, {2, 4}}));
  EXPECT_THAT(
      std::string(run({{1, 1}, {1, 2}, {1, 3}, {1, 4}}).message()),
      HasSubstr("4 different tokens at one place, there is room for 3"));
}

// A model that keeps more of a sequence than its pages cannot go back to where
// continuations part; of a single token each, nothing is fed after the prompt.
TEST(ScoringTest, WithoutShareablePagesContinuationsHaveOneToken) {
  ToyModelOptions options = {.memory = ToyModelOptions::Memory::kSequences};
  const ModelDescription model = ToyModel(options).description();
  Request longer = Scoring({1, 2}, {{1}, {2, 3}});
  EXPECT_THAT(std::string(ValidateRequest(model, &longer).message()),
              HasSubstr("(has_shareable_pages), got 2"));
  for (Request request : {Scoring({1, 2}, {{1}, {3}}), PromptAlone({1, 2})}) {
    ASSERT_OK(ValidateRequest(model, &request));
    EXPECT_OK(RunAlone(options, request));
  }
}

}  // namespace
}  // namespace espalier
