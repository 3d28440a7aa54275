#include "beam/strategy/sample_strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "beam/validate_result.h"
#include "tests/beam/search_alone.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

GenerationParams SampleParams(int64_t max_new_tokens) {
  GenerationParams params;
  params.max_new_tokens = max_new_tokens;
  params.eos_token_id = {0, 9};
  return params;
}

SelectionResult Best(TokenId token, float cum) {
  return {.candidates = {{.beam = 0, .token = token, .cum_log_prob = cum}}};
}

TEST(GreedySearchTest, AsksForOneToken) {
  SampleStrategy strategy(SampleParams(4));
  ASSERT_OK(strategy.Advance(Best(5, -0.5f), nullptr));
  PlanSelection selection;
  strategy.DescribeSelection(&selection);
  EXPECT_EQ(selection.num_rows, 1);
  ASSERT_EQ(selection.kind(), SelectionKind::kDraws);
  EXPECT_EQ(selection.num_candidates(), 1);
  EXPECT_THAT(selection.as_draws()->samples, ElementsAre(0));
  EXPECT_EQ(selection.num_generated, 1);
  EXPECT_THAT(selection.cum_log_probs, ElementsAre(-0.5f));
}

TEST(GreedySearchTest, EndsAtAnyEosAndReturnsIt) {
  SampleStrategy strategy(SampleParams(10));
  ASSERT_OK(strategy.Advance(Best(5, -0.5f), nullptr));
  EXPECT_THAT(strategy.continuations(), ElementsAre(Continuation{0, 5}));
  EXPECT_FALSE(strategy.done());
  EXPECT_THAT(strategy.Hypotheses(), IsEmpty());
  ASSERT_OK(strategy.Advance(Best(9, -1.5f), nullptr));
  EXPECT_THAT(strategy.continuations(), IsEmpty());
  EXPECT_TRUE(strategy.done());
  ASSERT_EQ(strategy.Hypotheses().size(), 1);
  const Hypothesis hypothesis = strategy.Hypotheses()[0];
  EXPECT_THAT(hypothesis.tokens, ElementsAre(5, 9));
  EXPECT_EQ(hypothesis.cum_log_prob, -1.5f);
  EXPECT_EQ(hypothesis.score, -0.75f);
  EXPECT_EQ(hypothesis.finish_reason, FinishReason::kEos);
}

TEST(GreedySearchTest, EndsAtTheLengthLimit) {
  SampleStrategy strategy(SampleParams(2));
  ASSERT_OK(strategy.Advance(Best(5, -0.5f), nullptr));
  std::vector<TokenId> tokens = {3};
  strategy.AppendTokens(0, &tokens);
  EXPECT_THAT(tokens, ElementsAre(3, 5));
  ASSERT_OK(strategy.Advance(Best(6, -1.0f), nullptr));
  EXPECT_TRUE(strategy.done());
  const Hypothesis hypothesis = strategy.Hypotheses().at(0);
  EXPECT_THAT(hypothesis.tokens, ElementsAre(5, 6));
  EXPECT_EQ(hypothesis.score, -0.5f);
  EXPECT_EQ(hypothesis.finish_reason, FinishReason::kLength);
}

TEST(GreedySearchTest, AnEosAtTheLengthLimitCountsAsEos) {
  SampleStrategy strategy(SampleParams(1));
  ASSERT_OK(strategy.Advance(Best(0, -1.0f), nullptr));
  EXPECT_EQ(strategy.Hypotheses().at(0).finish_reason, FinishReason::kEos);
}

TEST(GreedySearchTest, NoPossibleTokenIsAnErrorThatSaysWhere) {
  SampleStrategy strategy(SampleParams(4));
  ASSERT_OK(strategy.Advance(Best(5, -0.5f), nullptr));
  EXPECT_THAT(strategy.Advance(Best(kNoToken, 0), nullptr),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("no token is possible after 1 generated")));
  EXPECT_TRUE(strategy.done());
  EXPECT_THAT(strategy.continuations(), IsEmpty());
  EXPECT_THAT(strategy.Hypotheses(), IsEmpty());
}

TEST(SampleStrategyTest, AnUpdatedSelectionIsAsOneDescribedAnew) {
  GenerationParams params = SampleParams(9);
  params.num_return_sequences = 3;
  SampleStrategy strategy(params);
  ASSERT_OK(strategy.Advance(
      {.candidates = {{0, 5, -1}, {0, 9, -2}, {0, 6, -3}}}, nullptr));
  PlanSelection updated;
  strategy.DescribeSelection(&updated);
  EXPECT_THAT(updated.as_draws()->samples, ElementsAre(0, 2));
  for (int step = 2; step < 5; ++step) {
    const float sum = -1.0f * static_cast<float>(step);
    ASSERT_OK(strategy.Advance({.candidates = {{0, 4, sum}, {1, 5, sum - 2}}},
                               nullptr));
    strategy.UpdateSelection(&updated);
    PlanSelection anew;
    strategy.DescribeSelection(&anew);
    EXPECT_EQ(updated.num_rows, anew.num_rows);
    EXPECT_EQ(updated.num_candidates(), anew.num_candidates());
    EXPECT_EQ(updated.num_generated, step);
    EXPECT_EQ(updated.cum_log_probs, anew.cum_log_probs);
    EXPECT_EQ(updated.as_draws()->samples, anew.as_draws()->samples);
    EXPECT_EQ(updated.as_draws()->row_num_generated,
              anew.as_draws()->row_num_generated);
  }
}

std::vector<std::pair<int, TokenTree::Node>> Ended(
    const DecodeStrategy& strategy) {
  std::vector<std::pair<int, TokenTree::Node>> ended;
  for (const EndedSequence& sequence : strategy.ended()) {
    ended.emplace_back(sequence.rank, sequence.node);
  }
  return ended;
}

// Tokens 1 to 4 may always follow, and each list takes long.
class LongLists final : public Constraint {
 public:
  State start() const override { return 0; }
  State Advance(State, TokenId token) const override {
    return std::ranges::find(tokens_, token) != tokens_.end() ? 0 : kNone;
  }
  Legal LegalTokens(State, int32_t) const override { return {tokens_}; }
  bool TryList(State, int32_t, int64_t) const override { return false; }
  bool accepts(State, int32_t) const override { return false; }
  bool ends(State, int32_t) const override { return false; }
  int64_t MaxLegal(int64_t num_sequences) const override {
    return num_sequences * std::ssize(tokens_);
  }
  int64_t MaxLast(int64_t) const override { return 0; }

 private:
  const std::vector<TokenId> tokens_ = {1, 2, 3, 4};
};

// A draft ends before a long list, unless it was drawn: what is accepted
// must not depend on that. So each row of a draft has its legal tokens.
TEST(SampleStrategyTest, RowsOfDrawnDraftsHaveTheirLegalTokens) {
  for (const bool are_drawn : {false, true}) {
    SampleStrategy strategy(SampleParams(10), std::make_shared<LongLists>());
    ASSERT_OK(strategy.Advance(Best(1, -0.5f), nullptr));
    const std::vector<std::vector<TokenId>> drafts =
        strategy.CutDrafts({{2, 3, 4}}, are_drawn);
    EXPECT_EQ(drafts[0].size(), are_drawn ? 3 : 0);
    PlanSelection selection;
    strategy.DescribeSelection(&selection);
    strategy.DescribeDrafts(drafts, &selection);
    ASSERT_EQ(selection.allowed.size(), drafts[0].size() + 1);
    for (const std::span<const TokenId> allowed : selection.allowed) {
      EXPECT_THAT(allowed, ElementsAre(1, 2, 3, 4));
    }
  }
}

TEST(SampleStrategyTest, SamplesThatEndedAreThoseBeforeTheStep) {
  GenerationParams params = SampleParams(9);
  params.num_return_sequences = 3;
  SampleStrategy strategy(params);
  ASSERT_OK(strategy.Advance(
      {.candidates = {{0, 5, -1}, {0, 6, -1}, {0, 7, -1}}}, nullptr));
  EXPECT_THAT(Ended(strategy), IsEmpty());
  const TokenTree::Node second = strategy.node(1);
  ASSERT_OK(strategy.Advance(
      {.candidates = {{0, 4, -2}, {1, 9, -2}, {2, 4, -2}}}, nullptr));
  EXPECT_THAT(Ended(strategy), ElementsAre(Pair(1, second)));
  ASSERT_OK(
      strategy.Advance({.candidates = {{0, 4, -3}, {1, 4, -3}}}, nullptr));
  EXPECT_THAT(Ended(strategy), IsEmpty());
  const TokenTree::Node third = strategy.node(1);
  ASSERT_OK(
      strategy.Advance({.candidates = {{0, 4, -4}, {1, 4, -4}, {1, 9, -5}},
                        .num_tokens = {1, 2}},
                       nullptr));
  EXPECT_THAT(Ended(strategy), ElementsAre(Pair(1, third)));
}

// The fourth token of its draft follows its end.
TEST(SampleStrategyTest, AnEndedSampleHasTheTokensUpToItsEnd) {
  GenerationParams params = SampleParams(9);
  params.num_return_sequences = 2;
  SampleStrategy strategy(params);
  ASSERT_OK(
      strategy.Advance({.candidates = {{0, 5, -1}, {0, 6, -1}}}, nullptr));
  ASSERT_OK(strategy.Advance({.candidates = {{0, 4, -2},
                                             {0, 5, -3},
                                             {0, 9, -4},
                                             {0, 4, -5},
                                             {1, 4, -2},
                                             {1, 5, -3}},
                              .num_tokens = {4, 2}},
                             nullptr));
  ASSERT_EQ(strategy.ended().size(), 1u);
  EXPECT_EQ(strategy.ended()[0].num_tokens, 3);
  EXPECT_EQ(strategy.continuations()[0].num_tokens, 2);
  ASSERT_OK(strategy.Advance({.candidates = {{0, 9, -4}}}, nullptr));
  EXPECT_EQ(strategy.ended()[0].num_tokens, 1);
}

// There is one sequence then, in which all begin.
TEST(SampleStrategyTest, AtTheFirstStepTheSequenceEndsWithTheLastSample) {
  GenerationParams params = SampleParams(9);
  params.num_return_sequences = 2;
  SampleStrategy some(params);
  ASSERT_OK(some.Advance({.candidates = {{0, 9, -1}, {0, 5, -1}}}, nullptr));
  EXPECT_THAT(Ended(some), IsEmpty());
  SampleStrategy all(params);
  ASSERT_OK(all.Advance({.candidates = {{0, 9, -1}, {0, 0, -1}}}, nullptr));
  EXPECT_THAT(Ended(all), ElementsAre(Pair(0, TokenTree::kRoot)));
}

TEST(SampleStrategyTest, ASampleWithoutATokenEndsThoseThatAreFinishedToo) {
  GenerationParams params = SampleParams(4);
  params.num_return_sequences = 2;
  SampleStrategy strategy(params);
  ASSERT_OK(
      strategy.Advance({.candidates = {{0, 9, -1}, {0, 5, -1}}}, nullptr));
  EXPECT_FALSE(strategy.done());
  EXPECT_THAT(strategy.Advance(Best(kNoToken, 0), nullptr),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "no token is possible for a sample"));
  EXPECT_TRUE(strategy.done());
}

// Without drafts the second sample comes there first, with them the first one.
TEST(SampleStrategyTest, TheErrorIsTheSameWhicheverSampleIsAhead) {
  for (const TokenId drawn : {kNoToken, kNotANumber}) {
    GenerationParams params = SampleParams(9);
    params.num_return_sequences = 2;
    const SelectionResult first = {.candidates = {{0, 4, -1}, {0, 5, -1}}};
    SampleStrategy plain(params);
    ASSERT_OK(plain.Advance(first, nullptr));
    const absl::Status error =
        plain.Advance({.candidates = {{0, 6, -2}, {1, drawn, 0}}}, nullptr);
    EXPECT_THAT(plain.continuations(), IsEmpty());
    SampleStrategy drafted(params);
    ASSERT_OK(drafted.Advance(first, nullptr));
    EXPECT_EQ(
        drafted.Advance(
            {.candidates = {{0, 6, -2}, {0, 7, -3}, {0, drawn, 0}, {1, 5, -2}},
             .num_tokens = {3, 1}},
            nullptr),
        error);
    EXPECT_THAT(drafted.continuations(), IsEmpty());
  }
}

TEST(GreedySearchTest, TakesTheBestTokenOfEveryStep) {
  const testing::ToyModelOptions options = {.eos_token_ids = {0, 9}};
  const testing::LanguageModel model =
      testing::ToyLanguageModel(options, {1, 2});
  SampleStrategy strategy(SampleParams(20));
  ASSERT_OK(testing::SearchAlone(model, &strategy));
  const std::vector<TokenId> tokens = strategy.Hypotheses().at(0).tokens;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::vector<float> log_probs = model(std::span(tokens).first(i));
    EXPECT_EQ(log_probs[tokens[i]],
              *std::max_element(log_probs.begin(), log_probs.end()));
  }
}

// Compares everything that a caller sees.
void ExpectEqual(const SampleStrategy& a, const SampleStrategy& b) {
  ASSERT_EQ(a.done(), b.done());
  const auto continuations = b.continuations();
  ASSERT_THAT(a.continuations(), ElementsAreArray(continuations));
  ASSERT_EQ(a.ended().size(), b.ended().size());
  for (size_t i = 0; i < a.ended().size(); ++i) {
    ASSERT_EQ(a.ended()[i].rank, b.ended()[i].rank);
    ASSERT_EQ(a.ended()[i].node, b.ended()[i].node);
    ASSERT_EQ(a.ended()[i].num_tokens, b.ended()[i].num_tokens);
  }
  const std::vector<SequenceState> states = b.States();
  for (size_t i = 0; i < states.size(); ++i) {
    ASSERT_EQ(a.States()[i].node, states[i].node);
    ASSERT_EQ(a.States()[i].cum_log_prob, states[i].cum_log_prob);
    ASSERT_EQ(a.States()[i].finish_reason, states[i].finish_reason);
    ASSERT_EQ(a.tree().Path(a.States()[i].node), b.tree().Path(states[i].node));
  }
}

// The fast path gives the slow path's result or declines; it accepts nothing
// that validation would refuse.
TEST(SampleStrategyTest, GoesOnAsItAdvances) {
  constexpr int kVocabSize = 12;
  int num_short = 0, num_long = 0, num_refused = 0;
  std::mt19937 random(1);
  const auto any = [&](int end) { return static_cast<int>(random() % end); };
  for (int i = 0; i < 2000; ++i) {
    GenerationParams params = SampleParams(8);
    params.num_return_sequences = 1 + any(3);
    SampleStrategy plain(params);
    SampleStrategy strategy(params);
    while (!plain.done()) {
      PlanSelection asked;
      plain.DescribeSelection(&asked);
      SelectionResult answer;
      const int num_samples =
          static_cast<int>(asked.as_draws()->samples.size());
      const int count = any(20) == 0 ? any(4) : num_samples;
      for (int s = 0; s < count; ++s) {
        const int row =
            any(40) == 0 ? any(5) - 1 : (asked.num_rows > 1 ? s : 0);
        const TokenId token =
            any(40) == 0 ? any(kVocabSize + 6) - 3 : any(kVocabSize);
        const float sum = any(40) == 0 ? std::nanf("") : -1.0f;
        answer.candidates.push_back({row, token, sum});
      }
      const bool is_valid = ValidateResult(asked, answer, kVocabSize).ok();
      const bool goes_on = strategy.ContinueAll(answer.candidates, kVocabSize);
      ASSERT_TRUE(is_valid || !goes_on) << i;
      num_short += goes_on;
      num_long += is_valid && !goes_on;
      num_refused += !is_valid;
      if (!goes_on) {
        ASSERT_NO_FATAL_FAILURE(ExpectEqual(strategy, plain)) << i;
      }
      if (!is_valid || !plain.Advance(answer, nullptr).ok()) break;
      if (!goes_on) {
        ASSERT_OK(strategy.Advance(answer, nullptr));
      }
      ASSERT_NO_FATAL_FAILURE(ExpectEqual(strategy, plain)) << i;
    }
  }
  EXPECT_GT(num_short, 1000);
  EXPECT_GT(num_long, 1000);
  EXPECT_GT(num_refused, 300);
}

}  // namespace
}  // namespace espalier
