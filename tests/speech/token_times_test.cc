#include "speech/token_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

namespace espalier {
namespace {

using Matrix = std::vector<std::vector<double>>;

// The definition, in double.
//   scores  [heads][tokens][positions]
Matrix DefinedMatrix(std::vector<Matrix> scores) {
  const size_t num_tokens = scores[0].size();
  const size_t size = scores[0][0].size();
  Matrix mean(num_tokens, std::vector<double>(size, 0));
  for (Matrix& head : scores) {
    for (std::vector<double>& row : head) {
      const double highest = *std::ranges::max_element(row);
      double sum = 0;
      for (double& value : row) sum += value = std::exp(value - highest);
      for (double& value : row) value /= sum;
    }
    for (size_t p = 0; p < size; ++p) {
      double average = 0, variance = 0;
      for (const auto& row : head) average += row[p] / num_tokens;
      for (const auto& row : head) {
        variance += std::pow(row[p] - average, 2) / num_tokens;
      }
      for (auto& row : head) row[p] = (row[p] - average) / std::sqrt(variance);
    }
    for (size_t t = 0; t < num_tokens; ++t) {
      for (int p = 0; p < static_cast<int>(size); ++p) {
        std::vector<double> around = {head[t][p]};
        for (int d = 1; d <= 3 && size > 3; ++d) {
          const int end = static_cast<int>(size) - 1;
          around.push_back(head[t][std::abs(p - d)]);
          around.push_back(head[t][p + d > end ? 2 * end - p - d : p + d]);
        }
        std::ranges::sort(around);
        mean[t][p] += around[around.size() / 2] / scores.size();
      }
    }
  }
  return mean;
}

TEST(AlignmentMatrixTest, IsAsDefined) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 2);
  for (const auto& [num_tokens, num_heads, num_positions] :
       {std::tuple{2, 1, 1}, {3, 2, 3}, {4, 1, 4}, {5, 3, 7}, {9, 2, 50}}) {
    std::vector<float> values;
    std::vector<Matrix> scores(
        num_heads, Matrix(num_tokens, std::vector<double>(num_positions)));
    for (int t = 0; t < num_tokens; ++t) {
      for (int h = 0; h < num_heads; ++h) {
        for (int p = 0; p < num_positions; ++p) {
          values.push_back(normal(random));
          scores[h][t][p] = values.back();
        }
      }
    }
    if (num_positions == 1) continue;  // all weights are 1: see below
    const Matrix expected = DefinedMatrix(scores);
    for (int first = 0; first < num_tokens; ++first) {
      const std::vector<float> matrix =
          AlignmentMatrix({values, num_tokens, num_heads, num_positions}, first,
                          num_tokens - first);
      for (int t = first; t < num_tokens; ++t) {
        for (int p = 0; p < num_positions; ++p) {
          EXPECT_NEAR(matrix[(t - first) * num_positions + p], expected[t][p],
                      2e-4)
              << t << " " << p;
        }
      }
    }
  }
}

// openai's program, with its matrices, in which a row and a column are before
// the first.
std::vector<int> LiteralPath(const std::vector<float>& matrix, int num_rows,
                             int num_cols) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<std::vector<float>> cost(
      num_rows + 1, std::vector<float>(num_cols + 1, kInfinity));
  std::vector<std::vector<int>> trace(num_rows + 1,
                                      std::vector<int>(num_cols + 1, -1));
  cost[0][0] = 0;
  for (int j = 1; j <= num_cols; ++j) {
    for (int i = 1; i <= num_rows; ++i) {
      const float c0 = cost[i - 1][j - 1];
      const float c1 = cost[i - 1][j];
      const float c2 = cost[i][j - 1];
      const int step = c0 < c1 && c0 < c2 ? 0 : c1 < c0 && c1 < c2 ? 1 : 2;
      const float least = step == 0 ? c0 : step == 1 ? c1 : c2;
      cost[i][j] = static_cast<float>(
          -double{matrix[(i - 1) * num_cols + j - 1]} + double{least});
      trace[i][j] = step;
    }
  }
  for (auto& row : trace) row[0] = 1;
  for (int& step : trace[0]) step = 2;
  std::vector<std::pair<int, int>> path;
  for (int i = num_rows, j = num_cols; i > 0 || j > 0;) {
    path.emplace_back(i - 1, j - 1);
    const int step = trace[i][j];
    if (step != 2) --i;
    if (step != 1) --j;
  }
  std::ranges::reverse(path);
  std::vector<int> entered;
  for (const auto& [row, column] : path) {
    if (row == std::ssize(entered)) entered.push_back(column);
  }
  return entered;
}

// Small whole numbers have many ties.
TEST(AlignRowsTest, TakesThePathOfOpenai) {
  std::mt19937 random(2);
  for (int i = 0; i < 3000; ++i) {
    const int num_rows = std::uniform_int_distribution(1, 9)(random);
    const int num_cols = std::uniform_int_distribution(1, 14)(random);
    std::vector<float> matrix(num_rows * num_cols);
    for (float& value : matrix) {
      value =
          i % 2 == 0
              ? static_cast<float>(std::uniform_int_distribution(-1, 1)(random))
              : std::normal_distribution<float>()(random);
    }
    const std::vector<int> rows = AlignRows(matrix, num_rows, num_cols);
    ASSERT_EQ(rows, LiteralPath(matrix, num_rows, num_cols)) << i;
    EXPECT_EQ(rows[0], 0);
    EXPECT_TRUE(std::ranges::is_sorted(rows));
  }
}

// Equal rows have no deviation, and a single position has the weight 1.
TEST(AlignRowsTest, NumbersThatAreNoneAlignAnything) {
  const std::vector<float> equal(3 * 2 * 5, 0.5F);
  const std::vector<float> matrix = AlignmentMatrix({equal, 3, 2, 5}, 1, 2);
  for (const int row : AlignRows(matrix, 2, 5)) {
    EXPECT_GE(row, 0);
    EXPECT_LT(row, 5);
  }
  const std::vector<float> one = AlignmentMatrix({equal, 30, 1, 1}, 0, 30);
  EXPECT_EQ(AlignRows(one, 30, 1), std::vector<int>(30, 0));
}

}  // namespace
}  // namespace espalier
