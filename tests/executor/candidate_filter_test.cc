// CandidateFilter against all sums and a full sort.
#include "executor/candidate_filter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/gumbel_topk/gumbel_topk.h"
#include "tests/few_cases.h"

namespace espalier {
namespace {

using Rows = std::vector<std::vector<Candidate>>;

// Rows of a group, as GumbelTopK and the device answer them.
class AnyGumbelRows {
 public:
  explicit AnyGumbelRows(int seed) : random_(seed) {
    auto params = std::make_shared<SelectionParams>();
    params->sampling.seed = seed;
    selection.params = params;
    selection.num_rows = 1 + Below(12);
    const int num_candidates = 1 + Below(40);
    selection.num_generated = Below(5);
    KeepAcrossRows kept = {.count = 1 + Below(2 * num_candidates)};
    selection.choice =
        RowSelection{.num_candidates = num_candidates, .gumbel_top_k = true};
    // The larger sums are, the more often rounding turns their order around.
    const float scale = std::pow(10.0f, static_cast<float>(Below(8)));
    const bool shifts = Below(2) == 0;
    for (int row = 0; row < selection.num_rows; ++row) {
      const float cum = -scale - static_cast<float>(Below(3));
      selection.cum_log_probs.push_back(cum);
      if (shifts) kept.maxima.push_back(cum + 0.1 * Below(50));
      rows.push_back(AnyRow(row, cum));
    }
    selection.Choose<RowSelection>().ranking = std::move(kept);
  }

  PlanSelection selection;
  Rows rows;

 private:
  int Below(int end) { return static_cast<int>(random_() % end); }

  // In falling order of value + noise, of values that are often the same.
  std::vector<Candidate> AnyRow(int row, float cum) {
    std::vector<Candidate> values;
    for (TokenId token = 0; token < 60; ++token) {
      if (Below(4) == 0) continue;
      values.push_back({row, token, -0.01f * static_cast<float>(Below(700))});
    }
    std::vector<double> sums;
    AddNoise(values, selection.params->sampling.seed, row,
             selection.num_generated, &sums);
    std::vector<int> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater(),
                             [&](int i) { return sums[i]; });
    std::vector<Candidate> best;
    for (const int i : order) {
      if (std::ssize(best) == selection.num_candidates()) break;
      best.push_back(values[i]);
      best.back().cum_log_prob += cum;
    }
    return best;
  }

  std::mt19937 random_;
};

std::vector<Candidate> ByFullSort(const PlanSelection& selection,
                                  const Rows& rows) {
  const auto& kept = std::get<KeepAcrossRows>(selection.as_rows()->ranking);
  std::vector<std::tuple<double, int, int>> ranked;  // -sum, row, idx
  std::vector<int> highest(rows.size(), -1);
  for (int row = 0; row < std::ssize(rows); ++row) {
    std::vector<double> sums;
    AddNoise(rows[row], selection.params->sampling.seed, row,
             selection.num_generated, &sums);
    if (sums.empty()) continue;
    const auto maximum = std::ranges::max_element(sums);
    if (!kept.maxima.empty()) {
      highest[row] = static_cast<int>(maximum - sums.begin());
    }
    for (int i = 0; i < std::ssize(sums); ++i) {
      const double sum = highest[row] < 0 ? sums[i]
                                          : ShiftToMaximum(sums[i], *maximum,
                                                           kept.maxima[row]);
      ranked.push_back({-sum, row, i});
    }
  }
  std::ranges::sort(ranked);
  if (std::ssize(ranked) > kept.count) ranked.resize(kept.count);
  std::vector<std::tuple<int, int>> taken;
  for (const auto& [sum, row, idx] : ranked) {
    taken.push_back({row, idx});
    if (highest[row] >= 0) taken.push_back({row, highest[row]});
  }
  std::ranges::sort(taken);
  const auto rest = std::ranges::unique(taken);
  taken.erase(rest.begin(), rest.end());
  std::vector<Candidate> candidates;
  for (const auto& [row, idx] : taken) candidates.push_back(rows[row][idx]);
  return candidates;
}

std::vector<Candidate> Left(const PlanSelection& selection, const Rows& rows,
                            const std::vector<int>& order) {
  CandidateFilter contenders(selection);
  for (const int row : order) contenders.Add(row, rows[row]);
  return contenders.Take();
}

TEST(CandidateFilterTest, WhatIsLeftIsWhatAFullSortTakesInAnyOrderOfRows) {
  for (int seed = 0; seed < testing::Cases(5000, 500); ++seed) {
    const AnyGumbelRows group(seed);
    std::vector<int> order(group.rows.size());
    std::iota(order.begin(), order.end(), 0);
    std::mt19937 random(seed);
    std::ranges::shuffle(order, random);
    ASSERT_EQ(Left(group.selection, group.rows, order),
              ByFullSort(group.selection, group.rows))
        << seed;
  }
}

// They reach the validation of the result.
TEST(CandidateFilterTest, RowsThatAreNoNumbersStay) {
  AnyGumbelRows group(3);
  group.selection.num_rows = 3;
  group.selection.cum_log_probs = {-1, -2, -3};
  group.selection.Choose<RowSelection>().ranking = KeepAcrossRows{.count = 1};
  const Rows rows = {
      {{0, 5, -1}, {0, 6, -90}},
      {{1, -2, 0}},
      {{2, 5, std::numeric_limits<float>::quiet_NaN()}, {2, 6, -90}}};
  const std::vector<Candidate> left = Left(group.selection, rows, {0, 1, 2});
  ASSERT_EQ(left.size(), 4u);
  EXPECT_EQ(left[0], rows[0][0]);
  EXPECT_EQ(left[1], rows[1][0]);
  EXPECT_TRUE(std::isnan(left[2].cum_log_prob));
  EXPECT_EQ(left[3], rows[2][1]);
}

}  // namespace
}  // namespace espalier
