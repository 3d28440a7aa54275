#include "beam/strategy/stopping_criteria.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "beam/prepared_request.h"
#include "beam/strategy/allowed_sequences.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::EnFrTokenizer;
using testing::SharedEnFrTokenizer;
using testing::StatusIs;

GenerationParams StoppingParams() {
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
  int length = 0;  // 0: not ended
  std::optional<FinishReason> reason;
};

// Returns the number of tokens of `text` until it ends, and the reason.
End EndOf(const GenerationParams& params, const std::string& text) {
  const StoppingCriteria criteria(
      params, nullptr, RequestText::Make(params, SharedEnFrTokenizer()));
  StoppingCriteria::Progress progress = criteria.Begin();
  int length = 0;
  for (const TokenId token : Encode(text)) {
    ++length;
    const StoppingCriteria::Outcome outcome = criteria.Feed(token, &progress);
    EXPECT_NE(outcome.hit.has_value(), outcome.goes_on);
    if (outcome.hit.has_value()) return {length, outcome.hit};
  }
  return {};
}

TEST(StoppingCriteriaTest, IdsEndASequenceAndAnEosIdIsNamedFirst) {
  const StoppingCriteria criteria(StoppingParams());
  StoppingCriteria::Progress progress = criteria.Begin();
  EXPECT_EQ(criteria.Feed(2, &progress).hit, FinishReason::kEos);
  EXPECT_EQ(criteria.Feed(7, &progress).hit, FinishReason::kEos);
  EXPECT_EQ(criteria.Feed(9, &progress).hit, FinishReason::kStop);
  EXPECT_EQ(criteria.Feed(8, &progress).hit, std::nullopt);
  EXPECT_TRUE(criteria.Feed(8, &progress).goes_on);
  EXPECT_THAT(criteria.token_ids(), ElementsAre(2, 7, 9));
  EXPECT_TRUE(criteria.is_by_token());
}

TEST(StoppingCriteriaTest, IgnoredEosIdsAreOrdinaryButStopIdsAreNot) {
  GenerationParams params = StoppingParams();
  params.ignore_eos = true;
  const StoppingCriteria criteria(params);
  StoppingCriteria::Progress progress = criteria.Begin();
  EXPECT_EQ(criteria.Feed(2, &progress).hit, std::nullopt);
  EXPECT_EQ(criteria.Feed(7, &progress).hit, FinishReason::kStop);
}

TEST(StoppingCriteriaTest, AStopStringEndsWithTheTokenThatCompletesIt) {
  GenerationParams params = StoppingParams();
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

TEST(StoppingCriteriaTest, StopStringsDoNotCountBeforeMinNewTokens) {
  GenerationParams params = StoppingParams();
  params.stop = {"a"};
  const std::string text = "Je ne sais pas.";
  const End first = EndOf(params, text);
  params.min_new_tokens = first.length;
  const End second = EndOf(params, text);
  EXPECT_GT(second.length, first.length);
  EXPECT_EQ(second.reason, FinishReason::kStop);
}

// A beam that forks takes its text with it, and the children go separate ways.
TEST(StoppingCriteriaTest, ProgressForksByCopying) {
  GenerationParams params = StoppingParams();
  params.stop = {"ne sais"};
  const StoppingCriteria criteria(
      params, nullptr, RequestText::Make(params, SharedEnFrTokenizer()));
  StoppingCriteria::Progress parent = criteria.Begin();
  const std::vector<TokenId> tokens = Encode("Je ne sais");
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    EXPECT_EQ(criteria.Feed(tokens[i], &parent).hit, std::nullopt);
  }
  StoppingCriteria::Progress child = parent;
  EXPECT_EQ(criteria.Feed(Encode("veux").front(), &child).hit, std::nullopt);
  EXPECT_EQ(criteria.Feed(tokens.back(), &parent).hit, FinishReason::kStop);
}

// To make an automaton of them takes long, and the strand waits for a strategy.
TEST(StoppingCriteriaTest, StopsAreThoseThatWerePreparedWithTheRequest) {
  GenerationParams params = StoppingParams();
  params.stop = {"ne sais"};
  const PreparedRequest prepared({{1}, params}, SharedEnFrTokenizer());
  const long num_owners = prepared.text.use_count();
  const StoppingCriteria criteria(params, nullptr, prepared.text);
  EXPECT_EQ(prepared.text.use_count(), num_owners + 1);
  EXPECT_FALSE(criteria.is_by_token());
}

TEST(StoppingCriteriaTest, WhereSequencesAreAllowedTheirEndsAloneCount) {
  GenerationParams params = StoppingParams();
  params.allowed_sequences = {{{5, 6}, {5, 6, 2}, {8}}};
  const StoppingCriteria criteria(params, AllowedSequencesOf(params));
  EXPECT_FALSE(criteria.is_by_token());
  StoppingCriteria::Progress progress = criteria.Begin();
  EXPECT_THAT(criteria.LegalTokens(progress).tokens, ElementsAre(5, 8));
  EXPECT_EQ(criteria.LegalTokens(progress).num_last, 1);
  EXPECT_EQ(criteria.Feed(5, &progress).hit, std::nullopt);
  const StoppingCriteria::Outcome both = criteria.Feed(6, &progress);
  EXPECT_EQ(both.hit, FinishReason::kStop);
  EXPECT_TRUE(both.goes_on);
  const StoppingCriteria::Outcome end = criteria.Feed(2, &progress);
  EXPECT_EQ(end.hit, FinishReason::kEos);
  EXPECT_FALSE(end.goes_on);
}

TEST(CheckStopsTest, StopsNeedATokenizer) {
  GenerationParams params = StoppingParams();
  EXPECT_OK(CheckStops(params, nullptr));
  params.stop = {"x"};
  EXPECT_OK(CheckStops(params, &EnFrTokenizer()));
  EXPECT_THAT(CheckStops(params, nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "stop must be empty without a tokenizer, which makes "
                       "the text to find it in, got 1 string"));
}

}  // namespace
}  // namespace espalier
