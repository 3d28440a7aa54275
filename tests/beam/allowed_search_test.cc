// Searches whose output must be one of given sequences.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "beam/prepared_request.h"
#include "beam/strategy/allowed_sequences.h"
#include "beam/strategy/diverse_beam_strategy.h"
#include "beam/strategy/length_penalty.h"
#include "beam/strategy/selection_options.h"
#include "tests/beam/search_alone.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using testing::LogitsModel;
using testing::SearchAsTheEngine;
using testing::ToyLogitsModel;
using testing::ToyModelOptions;
using Sequences = std::vector<std::vector<int64_t>>;

constexpr int kToyVocabSize = 9;
constexpr int64_t kEosToken = 0;

Request Allowing(Sequences sequences, int64_t num_beams) {
  Request request;
  request.prompt_tokens = {1, 2};
  GenerationParams& params = request.params;
  params.num_beams = num_beams;
  params.num_return_sequences = num_beams;
  params.early_stopping = EarlyStopping::kNever;
  params.max_new_tokens = 6;
  params.eos_token_id = {kEosToken};
  params.allowed_sequences = std::move(sequences);
  return request;
}

// Different ones of 1 to 6 tokens, EOS at the end of some.
Sequences RandomSequences(std::mt19937& random, int count) {
  std::set<std::vector<int64_t>> sequences;
  while (sequences.size() < count) {
    std::vector<int64_t> sequence(1 + random() % 5);
    for (int64_t& token : sequence) token = 1 + random() % (kToyVocabSize - 1);
    if (random() % 2 == 0) sequence.push_back(kEosToken);
    sequences.insert(sequence);
  }
  return Sequences(sequences.begin(), sequences.end());
}

std::vector<TokenId> ToTokens(const std::vector<int64_t>& sequence) {
  return {sequence.begin(), sequence.end()};
}

// Every sequence with its score, best first.
std::vector<Hypothesis> ScoreAll(const LogitsModel& model,
                                 const Request& request) {
  const LengthPenalty penalty(request.params);
  std::vector<Hypothesis> all;
  for (const auto& sequence : *request.params.allowed_sequences) {
    Hypothesis hypothesis = {.tokens = ToTokens(sequence)};
    std::vector<TokenId> history = request.prompt_tokens;
    for (const TokenId token : hypothesis.tokens) {
      hypothesis.cum_log_prob += testing::LogSoftmax(model(history))[token];
      history.push_back(token);
    }
    hypothesis.score = penalty.Score(hypothesis.cum_log_prob,
                                     static_cast<int>(sequence.size()));
    all.push_back(hypothesis);
  }
  std::ranges::sort(all, [](const Hypothesis& a, const Hypothesis& b) {
    return a.score > b.score;
  });
  return all;
}

TEST(AllowedSearchTest, BeamsEnoughForAllGiveThoseOfExhaustiveScoring) {
  std::mt19937 random(2);
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const LogitsModel model = ToyLogitsModel({.vocab_size = kToyVocabSize,
                                              .seed = seed,
                                              .eos_token_ids = {kEosToken}});
    const int count = 1 + static_cast<int>(random() % 40);
    Request request = Allowing(RandomSequences(random, count), count + 1);
    request.params.length_penalty = (seed % 4) * 0.5;
    if (seed % 3 == 0) {
      request.params.length_penalty_form = LengthPenaltyForm::kWu;
    }
    ASSERT_OK_AND_ASSIGN(const Result result,
                         SearchAsTheEngine(model, request));
    const std::vector<Hypothesis> all = ScoreAll(model, request);
    ASSERT_EQ(result.hypotheses.size(), all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(result.hypotheses[i].tokens, all[i].tokens);
      EXPECT_NEAR(result.hypotheses[i].score, all[i].score, 1e-5);
      EXPECT_EQ(result.hypotheses[i].finish_reason,
                all[i].tokens.back() == kEosToken ? FinishReason::kEos
                                                  : FinishReason::kStop);
    }
  }
}

// Every strategy gives sequences of the set, and beams as many as there are: a
// live beam is never lost to those that end.
void ExpectLegal(const Request& request, uint64_t seed) {
  const LogitsModel model = ToyLogitsModel({.vocab_size = kToyVocabSize,
                                            .seed = seed,
                                            .eos_token_ids = {kEosToken}});
  ASSERT_OK_AND_ASSIGN(const Result result, SearchAsTheEngine(model, request));
  const GenerationParams& params = request.params;
  const Sequences& allowed = *params.allowed_sequences;
  for (const Hypothesis& hypothesis : result.hypotheses) {
    const std::vector<int64_t> tokens(hypothesis.tokens.begin(),
                                      hypothesis.tokens.end());
    EXPECT_TRUE(std::ranges::count(allowed, tokens) == 1)
        << "not one of the sequences";
    EXPECT_NE(hypothesis.finish_reason, FinishReason::kLength);
  }
  EXPECT_GE(result.hypotheses.size(), 1);
  if (params.num_beams > 1 && !params.stochastic &&
      params.num_beam_groups == 1) {
    EXPECT_EQ(result.hypotheses.size(),
              std::min<size_t>(params.num_beams, allowed.size()));
  }
}

TEST(AllowedSearchTest, EveryOutputIsOneOfTheSequencesWhateverTheStrategy) {
  std::mt19937 random(3);
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const int count = 1 + static_cast<int>(random() % 60);
    Request request =
        Allowing(RandomSequences(random, count), 2 + random() % 6);
    GenerationParams& params = request.params;
    params.seed = seed;
    ExpectLegal(request, seed);
    params.do_sample = true;
    ExpectLegal(request, seed);
    params.do_sample = false;
    params.stochastic = true;
    ExpectLegal(request, seed);
    params.stochastic = false;
    params.num_beam_groups = 2;
    params.diversity_penalty = 0.5;
    params.num_beams = params.num_return_sequences = 6;
    ExpectLegal(request, seed);
    params.num_beam_groups = 1;
    params.num_beams = 1;
    params.num_return_sequences = 1;
    ExpectLegal(request, seed);
    params.do_sample = true;
    params.num_return_sequences = 4;
    ExpectLegal(request, seed);
  }
}

// Whatever the others have chosen.
TEST(AllowedSearchTest, GroupsWiderThanTheSetFindEverySequence) {
  std::mt19937 random(4);
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const int count = 1 + static_cast<int>(random() % 12);
    const LogitsModel model = ToyLogitsModel({.vocab_size = kToyVocabSize,
                                              .seed = seed,
                                              .eos_token_ids = {kEosToken}});
    for (const double diversity_penalty : {0.0, 0.7}) {
      Request request =
          Allowing(RandomSequences(random, count), 3 * (count + 1));
      request.params.num_beam_groups = 3;
      request.params.diversity_penalty = diversity_penalty;
      ASSERT_OK_AND_ASSIGN(const Result result,
                           SearchAsTheEngine(model, request));
      const std::vector<Hypothesis> all = ScoreAll(model, request);
      ASSERT_EQ(result.hypotheses.size(), 3 * all.size());
      std::map<std::vector<TokenId>, int> num_found;
      for (size_t i = 0; i < result.hypotheses.size(); ++i) {
        const Hypothesis& found = result.hypotheses[i];
        ++num_found[found.tokens];
        if (diversity_penalty > 0) continue;
        EXPECT_NEAR(found.score, all[i / 3].score, 1e-5);
      }
      for (const Hypothesis& hypothesis : all) {
        EXPECT_EQ(num_found[hypothesis.tokens], 3);
      }
    }
  }
}

// The second group, kept from the first one's token, is on a longer sequence.
TEST(AllowedSearchTest, AGroupThatRunsOutOfTokensLeavesTheOtherGoing) {
  Request request = Allowing({{2, 3}, {5, 6, 7}}, 2);
  request.params.num_beam_groups = 2;
  request.params.diversity_penalty = 9;
  const LogitsModel model = [](std::span<const TokenId>) {
    return std::vector<float>({0, 0, 5, 0, 0, 3, 0, 0, 0});
  };
  ASSERT_OK_AND_ASSIGN(const Result result, SearchAsTheEngine(model, request));
  EXPECT_EQ(result.usage.num_steps, 3);
  ASSERT_EQ(result.hypotheses.size(), 2);
  std::set<std::vector<TokenId>> found;
  for (const Hypothesis& hypothesis : result.hypotheses) {
    found.insert(hypothesis.tokens);
  }
  EXPECT_THAT(found, ElementsAre(ElementsAre(2, 3), ElementsAre(5, 6, 7)));
}

// Beams wider than the number of sequences draw all of them, and the rest stays
// empty. EOS ends them all, so that none is a prefix of another.
TEST(AllowedSearchTest, StochasticBeamsWiderThanTheSetDrawEverySequence) {
  std::mt19937 random(5);
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const int count = 1 + static_cast<int>(random() % 12);
    std::set<std::vector<int64_t>> sequences;
    for (std::vector<int64_t>& sequence : RandomSequences(random, count)) {
      if (sequence.back() != kEosToken) sequence.push_back(kEosToken);
      sequences.insert(sequence);
    }
    Request request = Allowing({sequences.begin(), sequences.end()}, 20);
    request.params.early_stopping = EarlyStopping::kFalse;
    request.params.stochastic = true;
    request.params.seed = seed;
    const LogitsModel model = ToyLogitsModel({.vocab_size = kToyVocabSize,
                                              .seed = seed,
                                              .eos_token_ids = {kEosToken}});
    ASSERT_OK_AND_ASSIGN(const Result result,
                         SearchAsTheEngine(model, request));
    std::set<std::vector<int64_t>> drawn;
    double mass = 0;
    for (const Hypothesis& hypothesis : result.hypotheses) {
      drawn.insert({hypothesis.tokens.begin(), hypothesis.tokens.end()});
      mass += std::exp(hypothesis.cum_log_prob);
    }
    EXPECT_EQ(drawn, sequences);
    EXPECT_EQ(result.hypotheses.size(), sequences.size());
    EXPECT_EQ(result.threshold, std::nullopt);
    EXPECT_NEAR(mass, 1, 1e-5);
  }
}

// Many sequences end at once, and all are better than the one that continues.
TEST(AllowedSearchTest, ABeamIsNotLostToManyThatEnd) {
  Request request = Allowing({{2}, {3}, {4}, {5}, {6}, {7}, {8, 1, 1}}, 2);
  const LogitsModel model = [](std::span<const TokenId>) {
    return std::vector<float>({0, 0, 9, 9, 9, 9, 9, 9, -9});
  };
  request.params.length_penalty = 0;
  request.params.early_stopping = EarlyStopping::kTrue;
  request.params.patience = 1.5;  // 3 are needed
  ASSERT_OK_AND_ASSIGN(const Result result, SearchAsTheEngine(model, request));
  EXPECT_EQ(result.usage.num_steps, 3);
  EXPECT_THAT(result.hypotheses[0].tokens, ElementsAre(2));
  EXPECT_THAT(result.hypotheses[1].tokens, ElementsAre(3));
}

// Groups on the same sequences need no more than their reservation, wherever
// sequences end.
TEST(AllowedSearchTest, GroupsNeedNoMoreThanTheirWorstCase) {
  Sequences fan = {{40, 30, 1}};  // one sequence continues, so that ends count
  for (int64_t token = 1; token < 30; ++token) fan.push_back({40, token});
  Request request = Allowing(fan, 4);
  request.params.num_beam_groups = 4;
  constexpr int kManyTokens = 1000;
  DiverseBeamStrategy strategy(request.params,
                               AllowedSequencesOf(request.params));
  ASSERT_OK(strategy.Advance({.candidates = {{0, 40, -1.0f}}}, nullptr));
  PlanSelection selection;
  strategy.DescribeSelection(&selection);
  EXPECT_EQ(selection.num_rows, 4);
  EXPECT_LE(selection.num_rows * selection.num_candidates(),
            MaxCandidates(PreparedRequest(request), kManyTokens));
}

TEST(AllowedSearchTest, ASequenceThatBeginsAnotherEndsAndGoesOn) {
  const Request request = Allowing({{2}, {2, 3}, {2, 3, 4}}, 4);
  const LogitsModel model = ToyLogitsModel({.vocab_size = kToyVocabSize});
  ASSERT_OK_AND_ASSIGN(const Result result, SearchAsTheEngine(model, request));
  EXPECT_EQ(result.hypotheses.size(), 3);
}

TEST(AllowedSearchTest, ASampleEndsWithTheFirstSequenceItCompletes) {
  Request request = Allowing({{2}, {2, 3}, {2, 3, 4}}, 1);
  const LogitsModel model = ToyLogitsModel({.vocab_size = kToyVocabSize});
  ASSERT_OK_AND_ASSIGN(const Result result, SearchAsTheEngine(model, request));
  ASSERT_EQ(result.hypotheses.size(), 1);
  EXPECT_THAT(result.hypotheses[0].tokens, ElementsAre(2));
  EXPECT_EQ(result.hypotheses[0].finish_reason, FinishReason::kStop);
}

}  // namespace
}  // namespace espalier
