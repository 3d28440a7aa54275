#include "speech/token_times.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/check.h"

namespace espalier {
namespace {

constexpr int kFilterWidth = 7;
constexpr int kFilterPad = kFilterWidth / 2;

// In place. Scores that are not numbers make the row NaN.
void Softmax(std::span<float> row) {
  const float highest = *std::ranges::max_element(row);
  double sum = 0;
  for (float& value : row) sum += value = std::exp(value - highest);
  const auto scale = static_cast<float>(1 / sum);
  for (float& value : row) value *= scale;
}

// Subtracts each column's mean and divides by its standard deviation.
//   rows  [num_rows, num_cols]
void NormaliseColumns(int num_rows, int num_cols, std::span<float> rows) {
  std::vector<double> means(num_cols), squares(num_cols);
  for (int r = 0; r < num_rows; ++r) {
    const float* const row = rows.data() + size_t(r) * num_cols;
    for (int c = 0; c < num_cols; ++c) means[c] += row[c];
  }
  for (double& mean : means) mean /= num_rows;
  for (int r = 0; r < num_rows; ++r) {
    const float* const row = rows.data() + size_t(r) * num_cols;
    for (int c = 0; c < num_cols; ++c) {
      const double difference = row[c] - means[c];
      squares[c] += difference * difference;
    }
  }
  for (double& square : squares) square = std::sqrt(square / num_rows);
  for (int r = 0; r < num_rows; ++r) {
    float* const row = rows.data() + size_t(r) * num_cols;
    for (int c = 0; c < num_cols; ++c) {
      row[c] = static_cast<float>((row[c] - means[c]) / squares[c]);
    }
  }
}

// Orders two numbers.
void Order(float& low, float& high) {
  const float smaller = std::min(low, high);
  high = std::max(low, high);
  low = smaller;
}

// Adds the medians of `padded`'s runs of kFilterWidth to `sums`.
//   padded  [sums.size() + 2 * kFilterPad]
void AddMedians(std::span<const float> padded, std::span<float> sums) {
  for (size_t i = 0; i < sums.size(); ++i) {
    const float* const p = padded.data() + i;
    float a = p[0], b = p[1], c = p[2], d = p[3], e = p[4], f = p[5], g = p[6];
    // The exchanges of a sorting network that its middle depends on.
    Order(a, g);
    Order(c, d);
    Order(e, f);
    Order(a, c);
    Order(b, e);
    Order(d, g);
    Order(a, b);
    Order(c, f);
    Order(d, e);
    Order(b, c);
    Order(e, g);
    Order(c, d);
    Order(e, f);
    Order(d, e);
    sums[i] += d;
  }
}

// Pads a row with its reflection at both ends.
void Reflect(std::span<const float> row, std::span<float> padded) {
  std::ranges::copy(row, padded.begin() + kFilterPad);
  const size_t last = row.size() - 1;
  for (size_t i = 1; i <= kFilterPad; ++i) {
    padded[kFilterPad - i] = row[i];
    padded[kFilterPad + last + i] = row[last - i];
  }
}

enum class Step : uint8_t { kBoth, kRow, kColumn };

}  // namespace

std::vector<float> AlignmentMatrix(const AttentionScores3d& scores, int first,
                                   int count) {
  const int num_cols = scores.num_positions;
  const size_t head_stride = num_cols;
  const size_t token_stride = head_stride * scores.num_heads;
  CHECK_EQ(scores.values.size(), token_stride * scores.num_tokens);
  CHECK(first >= 0 && count >= 1 && first + count <= scores.num_tokens);
  std::vector<float> matrix(size_t(count) * num_cols);
  std::vector<float> rows(size_t(scores.num_tokens) * num_cols);
  std::vector<float> padded(num_cols + 2 * kFilterPad);
  for (int head = 0; head < scores.num_heads; ++head) {
    for (int token = 0; token < scores.num_tokens; ++token) {
      const auto row =
          std::span(rows).subspan(size_t(token) * num_cols, num_cols);
      std::ranges::copy(
          scores.values.subspan(token * token_stride + head * head_stride,
                                num_cols),
          row.begin());
      Softmax(row);
    }
    NormaliseColumns(scores.num_tokens, num_cols, rows);
    for (int i = 0; i < count; ++i) {
      const auto row =
          std::span(rows).subspan(size_t(first + i) * num_cols, num_cols);
      const auto sums =
          std::span(matrix).subspan(size_t(i) * num_cols, num_cols);
      if (num_cols <= kFilterPad) {  // too short to be filtered
        for (int c = 0; c < num_cols; ++c) sums[c] += row[c];
      } else {
        Reflect(row, padded);
        AddMedians(padded, sums);
      }
    }
  }
  for (float& sum : matrix) sum /= static_cast<float>(scores.num_heads);
  return matrix;
}

std::vector<int> AlignRows(std::span<const float> matrix, int num_rows,
                           int num_cols) {
  CHECK(num_rows >= 1 && num_cols >= 1);
  CHECK_EQ(matrix.size(), size_t(num_rows) * num_cols);
  // Costs are float32 as openai's: ties depend on it.
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> before(num_cols + 1, kInfinity);
  std::vector<float> costs(num_cols + 1, kInfinity);
  std::vector<Step> steps(size_t(num_rows) * num_cols);
  before[0] = 0;
  for (int r = 0; r < num_rows; ++r) {
    costs[0] = kInfinity;
    for (int c = 0; c < num_cols; ++c) {
      const float both = before[c];
      const float row = before[c + 1];
      const float column = costs[c];
      Step step = Step::kColumn;
      float cost = column;
      if (both < row && both < column) {
        step = Step::kBoth;
        cost = both;
      } else if (row < both && row < column) {
        step = Step::kRow;
        cost = row;
      }
      const size_t at = size_t(r) * num_cols + c;
      steps[at] = step;
      costs[c + 1] = static_cast<float>(double{cost} - double{matrix[at]});
    }
    std::swap(before, costs);
  }
  std::vector<int> entered(num_rows, 0);
  int r = num_rows - 1;
  int c = num_cols - 1;
  while (true) {
    entered[r] = c;
    // Along the edges there is one way.
    const Step step = r == 0   ? Step::kColumn
                      : c == 0 ? Step::kRow
                               : steps[size_t(r) * num_cols + c];
    if (r == 0 && c == 0) return entered;
    if (step != Step::kColumn) --r;
    if (step != Step::kRow) --c;
  }
}

}  // namespace espalier
