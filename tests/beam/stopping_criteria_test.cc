#include "beam/stopping_criteria.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "beam/prepared_request.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::EnFrTokenizer;
using testing::SharedEnFrTokenizer;
using testing::StatusIs;

GenerationParams RuleParams() {
  GenerationParams params;
  params.max_new_tokens = 20;
  params.eos_token_id = {2, 7};
  params.stop_token_ids = {7, 9};
  return params;
}

std::vector<TokenId> Encode(const std::string& text) {
  return EnFrTokenizer().Encode(text).value();
}

struct End {
  int length = 0;  // 0: it goes on
  std::optional<FinishReason> reason;
};

// How many tokens of `text` it takes to end, and as what.
End EndOf(const GenerationParams& params, const std::string& text) {
  const StoppingCriteria rule(params, nullptr,
                              RequestText::Make(params, SharedEnFrTokenizer()));
  StoppingCriteria::Progress progress = rule.Begin();
  int length = 0;
  for (const TokenId token : Encode(text)) {
    ++length;
    const StoppingCriteria::Outcome outcome = rule.Feed(token, &progress);
    EXPECT_NE(outcome.hit.has_value(), outcome.goes_on);
    if (outcome.hit.has_value()) return {length, outcome.hit};
  }
  return {};
}

TEST(FinishRuleTest, IdsEndASequenceAndAnEosIdIsNamedFirst) {
  const StoppingCriteria rule(RuleParams());
  StoppingCriteria::Progress progress = rule.Begin();
  EXPECT_EQ(rule.Feed(2, &progress).hit, FinishReason::kEos);
  EXPECT_EQ(rule.Feed(7, &progress).hit, FinishReason::kEos);
  EXPECT_EQ(rule.Feed(9, &progress).hit, FinishReason::kStop);
  EXPECT_EQ(rule.Feed(8, &progress).hit, std::nullopt);
  EXPECT_TRUE(rule.Feed(8, &progress).goes_on);
  EXPECT_THAT(rule.token_ids(), ElementsAre(2, 7, 9));
  EXPECT_TRUE(rule.is_by_token());
}

TEST(FinishRuleTest, IgnoredEosIdsAreOrdinaryButStopIdsAreNot) {
  GenerationParams params = RuleParams();
  params.ignore_eos = true;
  const StoppingCriteria rule(params);
  StoppingCriteria::Progress progress = rule.Begin();
  EXPECT_EQ(rule.Feed(2, &progress).hit, std::nullopt);
  EXPECT_EQ(rule.Feed(7, &progress).hit, FinishReason::kStop);
}

TEST(FinishRuleTest, AStopStringEndsWithTheTokenThatCompletesIt) {
  GenerationParams params = RuleParams();
  const std::string text = "Je ne sais pas.";
  const int num_tokens = static_cast<int>(Encode(text).size());
  params.stop = {"pas."};
  EXPECT_EQ(EndOf(params, text).length, num_tokens);
  EXPECT_EQ(EndOf(params, text).reason, FinishReason::kStop);
  params.stop = {"absent", "Je n"};
  EXPECT_EQ(EndOf(params, text).reason, FinishReason::kStop);
  EXPECT_LT(EndOf(params, text).length, num_tokens);
  params.stop = {"absent"};
  EXPECT_EQ(EndOf(params, text).reason, std::nullopt);
  EXPECT_FALSE(
      StoppingCriteria(params, nullptr,
                       RequestText::Make(params, SharedEnFrTokenizer()))
          .is_by_token());
}

TEST(FinishRuleTest, StopStringsDoNotCountBeforeMinNewTokens) {
  GenerationParams params = RuleParams();
  params.stop = {"a"};
  const std::string text = "Je ne sais pas.";
  const End first = EndOf(params, text);
  params.min_new_tokens = first.length;
  const End second = EndOf(params, text);
  EXPECT_GT(second.length, first.length);
  EXPECT_EQ(second.reason, FinishReason::kStop);
}

// A beam that forks takes its text with it, and the children go separate ways.
TEST(FinishRuleTest, ProgressForksByCopying) {
  GenerationParams params = RuleParams();
  params.stop = {"ne sais"};
  const StoppingCriteria rule(params, nullptr,
                              RequestText::Make(params, SharedEnFrTokenizer()));
  StoppingCriteria::Progress parent = rule.Begin();
  const std::vector<TokenId> tokens = Encode("Je ne sais");
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    EXPECT_EQ(rule.Feed(tokens[i], &parent).hit, std::nullopt);
  }
  StoppingCriteria::Progress child = parent;
  EXPECT_EQ(rule.Feed(Encode("veux").front(), &child).hit, std::nullopt);
  EXPECT_EQ(rule.Feed(tokens.back(), &parent).hit, FinishReason::kStop);
}

// To make an automaton of them takes long, and the strand waits for a strategy.
TEST(FinishRuleTest, StopsAreThoseThatWerePreparedWithTheRequest) {
  GenerationParams params = RuleParams();
  params.stop = {"ne sais"};
  const PreparedRequest prepared({{1}, params}, SharedEnFrTokenizer());
  const long num_owners = prepared.text.use_count();
  const StoppingCriteria rule(params, nullptr, prepared.text);
  EXPECT_EQ(prepared.text.use_count(), num_owners + 1);
  EXPECT_FALSE(rule.is_by_token());
}

TEST(FinishRuleTest, WhereSequencesAreAllowedTheirEndsAloneCount) {
  GenerationParams params = RuleParams();
  params.allowed_sequences = {{{5, 6}, {5, 6, 2}, {8}}};
  const StoppingCriteria rule(params, AllowedSequenceTrie::Make(params));
  EXPECT_FALSE(rule.is_by_token());
  StoppingCriteria::Progress progress = rule.Begin();
  EXPECT_THAT(*rule.Next(progress), ElementsAre(5, 8));
  EXPECT_EQ(rule.num_next(progress), 2);
  EXPECT_EQ(rule.num_leaf_children(progress), 1);
  EXPECT_EQ(rule.Feed(5, &progress).hit, std::nullopt);
  const StoppingCriteria::Outcome both = rule.Feed(6, &progress);
  EXPECT_EQ(both.hit, FinishReason::kStop);
  EXPECT_TRUE(both.goes_on);
  const StoppingCriteria::Outcome end = rule.Feed(2, &progress);
  EXPECT_EQ(end.hit, FinishReason::kEos);
  EXPECT_FALSE(end.goes_on);
}

TEST(CheckStopsTest, StopsNeedATokenizer) {
  GenerationParams params = RuleParams();
  EXPECT_OK(CheckStops(params, nullptr));
  params.stop = {"x"};
  EXPECT_OK(CheckStops(params, &EnFrTokenizer()));
  EXPECT_THAT(CheckStops(params, nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "stop must be empty without a tokenizer "
                       "(EngineOptions::tokenizer), which makes the text to "
                       "find it in, got 1 string"));
}

}  // namespace
}  // namespace espalier
