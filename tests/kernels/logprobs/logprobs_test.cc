#include "kernels/logprobs/logprobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "base/status.h"
#include "tests/kernels/each_target.h"
#include "tests/kernels/row_cases.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The twin's log(exp(logit - max)) loses values below the smallest double. No
// rank depends on them.
constexpr float kVanishing = -700;

void ExpectSame(const RowLogProbs& fast, const RowLogProbs& twin,
                size_t vocab_size) {
  const auto near = [&](float a, float b) {
    return Near(a, b, Tolerance(vocab_size, b)) ||
           (a < kVanishing && b < kVanishing);
  };
  ASSERT_EQ(fast.tokens.size(), twin.tokens.size());
  for (size_t i = 0; i < twin.tokens.size(); ++i) {
    EXPECT_EQ(fast.tokens[i].rank, twin.tokens[i].rank) << i;
    EXPECT_TRUE(near(fast.tokens[i].log_prob, twin.tokens[i].log_prob))
        << i << ": " << fast.tokens[i].log_prob << " "
        << twin.tokens[i].log_prob;
  }
  ASSERT_EQ(fast.best.size(), twin.best.size());
  for (size_t i = 0; i < twin.best.size(); ++i) {
    EXPECT_EQ(fast.best[i].token, twin.best[i].token) << i;
    EXPECT_TRUE(near(fast.best[i].log_prob, twin.best[i].log_prob)) << i;
  }
}

using LogProbsTest = TargetTest;
INSTANTIATE_TEST_SUITE_P(Targets, LogProbsTest, EachTarget(), TargetTestName);

TEST_P(LogProbsTest, AgreesWithTheTwinOnAnyRow) {
  for (const char* kind :
       {"normal", "ties", "near ties", "constant", "rising", "peak", "holes",
        "outliers", "widest", "infinite", "nothing"}) {
    for (const int size : {1, 2, 17, 64, 999, 4096, 5000}) {
      const std::vector<float> logits = Row(kind, size);
      std::vector<TokenId> some;
      for (int i = 0; i < 9; ++i) some.push_back(i * 7919 % size);
      for (const int num_best : {0, 1, 5, 64, 10'000}) {
        SCOPED_TRACE(Concat(kind, " ", size, " ", num_best));
        ExpectSame(LogProbsOfRow(logits, some, num_best),
                   reference::LogProbsOfRow(logits, some, num_best), size);
      }
    }
  }
}

TEST_P(LogProbsTest, AllTokensOfARowAtOnce) {
  const std::vector<float> logits = Row("holes", 1000);
  std::vector<TokenId> all(logits.size());
  std::iota(all.begin(), all.end(), 0);
  ExpectSame(LogProbsOfRow(logits, all, 3),
             reference::LogProbsOfRow(logits, all, 3), logits.size());
}

TEST_P(LogProbsTest, TheMassOfTokensIsThatOfTheTwin) {
  for (const char* kind :
       {"normal", "ties", "near ties", "constant", "rising", "peak", "holes",
        "outliers", "widest", "infinite", "nothing"}) {
    for (const int size : {1, 2, 17, 999, 5000}) {
      const std::vector<float> logits = Row(kind, size);
      std::vector<TokenId> all(size);
      std::iota(all.begin(), all.end(), 0);
      for (const int step : {1, 2, 3, 700}) {
        std::vector<TokenId> some;
        for (int i = step / 2; i < size; i += step) some.push_back(all[i]);
        SCOPED_TRACE(Concat(kind, " ", size, " ", step));
        const float mass = LogMassOf(logits, some);
        const double twin = reference::LogMassOf(logits, some);
        EXPECT_LE(mass, 0);
        EXPECT_TRUE(Near(mass, static_cast<float>(twin),
                         Tolerance(size, static_cast<float>(twin))) ||
                    (mass < kVanishing && twin < kVanishing))
            << mass << " " << twin;
        if (some.empty()) continue;
        const std::vector<TokenId> one = {some.front()};
        EXPECT_EQ(LogMassOf(logits, one),
                  LogProbsOfRow(logits, one, 0).tokens[0].log_prob);
      }
      EXPECT_EQ(LogMassOf(logits, {}), -kInf);
    }
  }
}

// Sums of a sequence are those of its selections.
TEST_P(LogProbsTest, AreThoseOfSelectionToTheBit) {
  for (const char* kind : {"normal", "near ties", "holes", "infinite"}) {
    const std::vector<float> logits = Row(kind, 3000);
    std::vector<TokenId> tokens;
    const Scores selected = SelectRow(logits, {.num_candidates = 200});
    for (const TokenScore& token : selected) tokens.push_back(token.token);
    tokens.push_back(2999);  // not among them: less is selected
    const RowLogProbs row = LogProbsOfRow(logits, std::span(tokens).last(2), 1);
    EXPECT_EQ(row.tokens[0].log_prob, selected.back().log_prob);
    const RowLogProbs rows = LogProbsOfRow(logits, tokens, 0);
    for (size_t i = 0; i < selected.size(); ++i) {
      EXPECT_EQ(rows.tokens[i].log_prob, selected[i].log_prob);
    }
  }
}

TEST(LogProbsOfRowTest, EqualsShareARankAndTheLowerTokenIsBetter) {
  const std::vector<float> logits = {1, 3, 3, 2, -kInf};
  const std::vector<TokenId> tokens = {0, 1, 2, 3, 4, 2};
  const RowLogProbs row = LogProbsOfRow(logits, tokens, 2);
  std::vector<int> ranks;
  for (const TokenRank& token : row.tokens) ranks.push_back(token.rank);
  EXPECT_THAT(ranks, ElementsAre(4, 1, 1, 3, 5, 1));
  EXPECT_EQ(row.best[0].token, 1);
  EXPECT_EQ(row.best[1].token, 2);
  EXPECT_EQ(row.tokens[4].log_prob, -kInf);
}

TEST(LogProbsOfRowTest, ARowOfNothingHasNoBest) {
  const std::vector<float> logits = {-kInf, kNan};
  const std::vector<TokenId> tokens = {1};
  const RowLogProbs row = LogProbsOfRow(logits, tokens, 2);
  EXPECT_THAT(row.tokens, ElementsAre(TokenRank{-kInf, 1}));
  EXPECT_THAT(row.best, IsEmpty());
}

}  // namespace
}  // namespace espalier
