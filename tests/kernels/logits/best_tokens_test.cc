#include "kernels/logits/best_tokens.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/float_limits.h"

namespace espalier {
namespace {

// The keys that a full sort of all scores keeps.
std::vector<ScoreKey> SortAll(const std::vector<float>& scores, int count) {
  std::vector<ScoreKey> keys;
  for (TokenId t = 0; t < std::ssize(scores); ++t) {
    if (scores[t] > -kInf) keys.push_back(MakeScoreKey(scores[t], t));
  }
  std::sort(keys.rbegin(), keys.rend());
  if (std::ssize(keys) > count) keys.resize(count);
  return keys;
}

std::vector<ScoreKey> Stream(const std::vector<float>& scores, int count) {
  BestTokens best(count, static_cast<int>(scores.size()));
  for (TokenId t = 0; t < std::ssize(scores); ++t) best.Add(scores[t], t);
  std::vector<ScoreKey> keys = best.Take();
  KeepBestSorted(count, keys);
  return keys;
}

// Few distinct scores, so that ties fall on the cut.
RC_GTEST_PROP(BestTokensTest, KeepsWhatASortOfAllKeeps, ()) {
  const auto raw = *rc::gen::nonEmpty(rc::gen::scale(
      20, rc::gen::container<std::vector<int>>(rc::gen::inRange(-9, 10))));
  std::vector<float> scores;
  for (const int r : raw) scores.push_back(r == -9 ? -kInf : r * 0.25f);
  const int count = *rc::gen::inRange<int>(1, scores.size() + 1);
  RC_ASSERT(Stream(scores, count) == SortAll(scores, count));
}

// Every token of a rising row survives the threshold, none of a falling one.
TEST(BestTokensTest, OrderOfTheStreamDoesNotMatter) {
  std::vector<float> scores(5000);
  for (int i = 0; i < 5000; ++i) scores[i] = 0.5f * (i / 3);
  for (const int count : {1, 2, 63, 64, 700, 5000}) {
    EXPECT_EQ(Stream(scores, count), SortAll(scores, count)) << count;
    std::vector<float> falling(scores.rbegin(), scores.rend());
    EXPECT_EQ(Stream(falling, count), SortAll(falling, count)) << count;
  }
}

TEST(ScoreKeyTest, OrdersByScoreThenLowerToken) {
  const std::vector<ScoreKey> best_first = {
      MakeScoreKey(kInf, 9),   MakeScoreKey(2.0f, 7),
      MakeScoreKey(1e-40f, 5), MakeScoreKey(-0.0f, 1),
      MakeScoreKey(0.0f, 2),   MakeScoreKey(-0.0f, 3),
      MakeScoreKey(-1.0f, 0),  MakeScoreKey(-1.0f, 2147483647),
      MakeScoreKey(-3e38f, 0), MakeScoreKey(-kInf, 0),
  };
  EXPECT_TRUE(std::is_sorted(best_first.rbegin(), best_first.rend()));
  EXPECT_EQ(ScoreOf(best_first[7]), -1.0f);
  EXPECT_EQ(TokenOf(best_first[7]), 2147483647);
  EXPECT_EQ(ScoreOf(best_first[2]), 1e-40f);
  EXPECT_EQ(ScoreOf(best_first[9]), -kInf);
}

}  // namespace
}  // namespace espalier
