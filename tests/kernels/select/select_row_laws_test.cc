// Invariants of selection, without a twin.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "kernels/select/select.h"
#include "tests/kernels/each_target.h"
#include "tests/kernels/row_cases.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using SelectRowSpecialsTest = TargetTest;
using SelectRowLawsTest = TargetTest;
INSTANTIATE_TEST_SUITE_P(Targets, SelectRowSpecialsTest, EachTarget(),
                         TargetTestName);
INSTANTIATE_TEST_SUITE_P(Targets, SelectRowLawsTest, EachTarget(),
                         TargetTestName);

TEST_P(SelectRowSpecialsTest, TokensAtPlusInfinityShareAllProbability) {
  const std::vector<float> logits = {1, kInf, -kInf, kInf, kNan};
  const float half = -std::log(2.0f);
  RowOptions options = {.num_candidates = 5};
  EXPECT_THAT(SelectRow(logits, options),
              ElementsAre(TokenScore{1, half}, TokenScore{3, half}));
  options.domain = ScoreDomain::kLogits;
  EXPECT_THAT(SelectRow(logits, options),
              ElementsAre(TokenScore{1, half}, TokenScore{3, half},
                          TokenScore{0, -kInf}));
}

TEST_P(SelectRowSpecialsTest, TheOnlyTokenIsCertain) {
  EXPECT_THAT(SelectRow(std::vector<float>{-7.25f}, {}),
              ElementsAre(TokenScore{0, 0.0f}));
  EXPECT_THAT(SelectRow(std::vector<float>{kNan, 3e38f, -kInf}, {}),
              ElementsAre(TokenScore{1, 0.0f}));
  EXPECT_THAT(SelectRow({}, {}), IsEmpty());
}

TEST_P(SelectRowSpecialsTest, ZerosOfBothSignsTie) {
  const std::vector<float> logits = {-0.0f, 0.0f, -0.0f, 0.0f};
  EXPECT_THAT(TokensOf(SelectRow(logits, {.num_candidates = 3})),
              ElementsAre(0, 1, 2));
}

TEST_P(SelectRowLawsTest, ProbabilitiesOfAllTokensAddUpToOne) {
  for (const int size : {1, 100, 6000, 128256}) {
    double sum = 0;
    for (const TokenScore& t :
         SelectRow(Normal(size, 4), {.num_candidates = size})) {
      sum += std::exp(static_cast<double>(t.log_prob));
    }
    EXPECT_NEAR(sum, 1.0, Tolerance(size, 12)) << size;
  }
}

TEST_P(SelectRowLawsTest, WhereTheRowLiesDoesNotMatter) {
  const std::vector<float> logits = Normal(5003, 5);
  const RowOptions options = {.num_candidates = 300};
  const Scores expected = SelectRow(logits, options);
  for (int offset = 1; offset < 17; ++offset) {
    std::vector<float> moved(offset, 99.0f);
    moved.insert(moved.end(), logits.begin(), logits.end());
    const auto row = std::span<const float>(moved).subspan(offset);
    EXPECT_EQ(SelectRow(row, options), expected) << offset;
  }
}

TEST_P(SelectRowLawsTest, TokensAtMinusInfinityChangeNothing) {
  std::vector<float> logits = Normal(1500, 6);
  const RowOptions options = {.num_candidates = 1500};
  const Scores expected = SelectRow(logits, options);
  logits.resize(9000, -kInf);
  EXPECT_EQ(SelectRow(logits, options), expected);
}

// Eighths below 2^6 plus 32: no rounding, so not a bit may change.
TEST_P(SelectRowLawsTest, AConstantAddedToTheRowChangesNothing) {
  std::vector<float> logits = Normal(4000, 7);
  for (float& l : logits) l = std::round(8 * l) / 8;
  const RowOptions options = {.num_candidates = 500};
  const Scores expected = SelectRow(logits, options);
  for (float& l : logits) l += 32;
  EXPECT_EQ(SelectRow(logits, options), expected);
}

RC_GTEST_PROP(SelectRowPropertyTest, RenamingTokensRenamesTheResult, ()) {
  const TargetChoice choice(*rc::gen::elementOf(Targets()));
  const int size = *rc::gen::inRange(1, 3000);
  std::mt19937 random(*rc::gen::inRange(0, 1000000));
  std::vector<TokenId> new_name(size);
  std::iota(new_name.begin(), new_name.end(), 0);
  std::vector<float> logits(size), renamed(size);
  for (int i = 0; i < size; ++i) logits[i] = 0.01f * i;  // no ties
  std::shuffle(logits.begin(), logits.end(), random);
  std::shuffle(new_name.begin(), new_name.end(), random);
  for (int i = 0; i < size; ++i) renamed[new_name[i]] = logits[i];
  const RowOptions options = {.domain = ScoreDomain::kLogits,
                              .num_candidates = *rc::gen::inRange(1, 200)};
  const Scores before = SelectRow(logits, options);
  const Scores after = SelectRow(renamed, options);
  RC_ASSERT(before.size() == after.size());
  for (size_t i = 0; i < before.size(); ++i) {
    RC_ASSERT(new_name[before[i].token] == after[i].token);
    RC_ASSERT(Near(before[i].log_prob, after[i].log_prob,
                   Tolerance(size, after[i].log_prob)));
  }
}

TEST_P(SelectRowLawsTest, FewerCandidatesAreAPrefixOfMore) {
  const std::vector<float> logits = Row("ties", 9000);
  RowOptions options = {.domain = ScoreDomain::kLogits, .num_candidates = 9000};
  const Scores all = SelectRow(logits, options);
  for (const int count : {1, 2, 63, 64, 65, 999, 8999}) {
    options.num_candidates = count;
    EXPECT_EQ(SelectRow(logits, options),
              Scores(all.begin(), all.begin() + count));
  }
}

}  // namespace
}  // namespace espalier
