#include "kernels/select/merge_candidates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <ostream>
#include <random>
#include <vector>

#include "kernels/float_limits.h"

namespace espalier {

void PrintTo(const Candidate& c, std::ostream* out) {
  *out << "{beam " << c.beam << ", token " << c.token << ", " << c.cum_log_prob
       << "}";
}

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Rows = std::vector<std::vector<TokenScore>>;

// Best first, as SelectRow gives them.
void Sort(std::vector<TokenScore>& row) {
  std::sort(row.begin(), row.end(), [](const auto& a, const auto& b) {
    return a.log_prob != b.log_prob ? a.log_prob > b.log_prob
                                    : a.token < b.token;
  });
}

TEST(MergeCandidatesTest, RanksOnTheSumThenTheBeamThenTheToken) {
  const Rows rows = {{{5, -1.0f}, {3, -2.0f}}, {{9, -0.5f}, {1, -1.5f}}};
  EXPECT_THAT(MergeCandidates(rows, std::vector<float>{-1.0f, -0.5f}, 3),
              ElementsAre(Candidate{1, 9, -1.0f}, Candidate{0, 5, -2.0f},
                          Candidate{1, 1, -2.0f}));
}

// At a sum of -1e9 all log-probabilities round to the same float.
TEST(MergeCandidatesTest, SumsThatRoundTogetherAreRankedByToken) {
  const Rows rows = {{{8, -1.0f}, {2, -2.0f}, {4, -3.0f}}};
  EXPECT_THAT(MergeCandidates(rows, std::vector<float>{-1e9f}, 2),
              ElementsAre(Candidate{0, 2, -1e9f}, Candidate{0, 4, -1e9f}));
}

TEST(MergeCandidatesTest, AnImpossibleContinuationIsNone) {
  const Rows rows = {{{1, 0.0f}}, {{2, 0.0f}}, {{3, -1.0f}, {4, -kInf}}, {}};
  const std::vector<float> sums = {-kInf, kNan, -2.0f, 0.0f};
  EXPECT_THAT(MergeCandidates(rows, sums, 9),
              ElementsAre(Candidate{2, 3, -3.0f}));
  EXPECT_THAT(MergeCandidates({}, {}, 1), IsEmpty());
}

// Greedy search gives rows in the order of edited logits.
TEST(MergeCandidatesTest, ARowOfOneTokenIsSortedAndOthersAreChecked) {
  EXPECT_THAT(MergeCandidates(Rows{{{7, -3.0f}}}, std::vector<float>{0.0f}, 1),
              ElementsAre(Candidate{0, 7, -3.0f}));
#ifdef NDEBUG
  GTEST_SKIP() << "only debug builds check the order of rows";
#else
  const Rows unsorted = {{{1, -1.0f}}, {{7, -kInf}, {8, -1.0f}}};
  EXPECT_DEATH(MergeCandidates(unsorted, std::vector<float>{0.0f, 0.0f}, 2),
               "the row of beam 1");
#endif
}

// Few distinct values, so that ties within and across beams abound.
RC_GTEST_PROP(MergeCandidatesTest, EqualsTheTwin, ()) {
  const int num_beams = *rc::gen::inRange(1, 12);
  const float unit = *rc::gen::element(0.25f, 1e-9f, 64.0f);
  Rows rows(num_beams);
  std::vector<float> sums;
  for (auto& row : rows) {
    const int size = *rc::gen::inRange(0, 30);
    for (TokenId token = 0; token < size; ++token) {
      row.push_back({token, -unit * *rc::gen::inRange(0, 8)});
    }
    Sort(row);
    sums.push_back(-0.25f * *rc::gen::inRange(0, 8));
  }
  const int count = *rc::gen::inRange(1, 100);
  RC_ASSERT(MergeCandidates(rows, sums, count) ==
            reference::MergeCandidates(rows, sums, count));
}

TEST(MergeCandidatesTest, EqualsTheTwinOnAThousandBeams) {
  std::mt19937 random(3);
  std::exponential_distribution<float> nats(0.2f);
  Rows rows(1000);
  std::vector<float> sums;
  for (auto& row : rows) {
    for (TokenId token = 0; token < 50; ++token) {
      row.push_back({token, -nats(random)});
    }
    Sort(row);
    sums.push_back(-nats(random));
  }
  for (const int count : {1, 2000, 49999, 60000}) {
    EXPECT_EQ(MergeCandidates(rows, sums, count),
              reference::MergeCandidates(rows, sums, count));
  }
}

}  // namespace
}  // namespace espalier
