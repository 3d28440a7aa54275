#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/elementwise/cuda_residual.h"
#include "kernels/elementwise/elementwise.h"
#include "tests/few_cases.h"
#include "tests/kernels/float_arrays.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::Cases;
using ::espalier::testing::DeviceArray;
using ::espalier::testing::DeviceInts;
using ::espalier::testing::kDTypes;
using ::espalier::testing::RandomFloats;
using ::espalier::testing::Rounded;
using ::espalier::testing::StatusIs;
using ::espalier::testing::Unit;
using ::testing::HasSubstr;

constexpr float kEpsilon = 1e-5f;

int WidthOf(int size) { return (size + 7) / 8 * 8; }

// Rows of `size` numbers with zeros up to the width.
std::vector<float> RandomRows(int num_rows, int size, int seed) {
  const int width = WidthOf(size);
  const std::vector<float> numbers =
      RandomFloats(size_t(num_rows) * size, seed);
  std::vector<float> rows(size_t(num_rows) * width);
  for (int row = 0; row < num_rows; ++row) {
    std::copy_n(&numbers[size_t(row) * size], size, &rows[size_t(row) * width]);
  }
  return rows;
}

std::vector<float> FirstOfRow(const std::vector<float>& rows, int row,
                              int size) {
  const auto begin = rows.begin() + int64_t{row} * WidthOf(size);
  return {begin, begin + size};
}

// A norm of a size with numbers of its own, of either kind.
struct TestNorm {
  TestNorm(int size, bool is_layer_norm, int seed)
      : weight(RandomRows(1, size, seed)),
        bias(RandomRows(1, size, seed + 1)),
        weight_array(weight, DType::kFloat32),
        bias_array(bias, DType::kFloat32),
        norm{.weight = weight_array.floats(),
             .size = size,
             .width = WidthOf(size),
             .epsilon = kEpsilon,
             .bias = is_layer_norm ? bias_array.floats() : nullptr} {}

  std::vector<double> Twin(const std::vector<float>& x) const {
    const std::vector<float> w = FirstOfRow(weight, 0, norm.size);
    return norm.bias == nullptr
               ? reference::RmsNorm(x, w, kEpsilon)
               : reference::LayerNorm(x, w, FirstOfRow(bias, 0, norm.size),
                                      kEpsilon);
  }
  // Bounds of the float32 error of each number of a row's norm. The roundings
  // of the mean and of the difference from it are as large as x, and the
  // divisor is near the deviation.
  std::vector<double> Tolerances(const std::vector<float>& x,
                                 const std::vector<double>& expected,
                                 DType dtype) const {
    const double roundings = 0x1p-24 * (x.size() / 32.0 + 32);
    double squares = 0, mean = 0, largest = 0;
    for (const float v : x) mean += v / x.size();
    for (const float v : x) {
      squares += (v - mean) * (v - mean);
      largest = std::max(largest, std::abs(double{v}));
    }
    const double deviation = std::sqrt(squares / x.size() + kEpsilon);
    std::vector<double> errors(expected.size());
    for (size_t i = 0; i < errors.size(); ++i) {
      errors[i] = std::abs(expected[i]) * (roundings + 1.01 * Unit(dtype));
      if (norm.bias != nullptr) {
        errors[i] +=
            roundings *
            (std::abs(weight[i]) * 2 * largest / deviation + std::abs(bias[i]));
      }
      // Below its normal numbers float16 rounds to multiples of 2^-24.
      errors[i] += dtype == DType::kFloat16 ? 0x1p-25 : 0x1p-40;
    }
    return errors;
  }

  std::vector<float> weight, bias;
  DeviceArray weight_array, bias_array;
  CudaNorm norm;
};

// Compares with the exact norm of these rows of the residual stream.
void ExpectNormed(const std::vector<float>& x, const TestNorm& norm,
                  const DeviceArray& out, DType dtype) {
  const int size = norm.norm.size, width = norm.norm.width;
  const std::vector<float> got = out.Read();
  for (size_t row = 0; row < x.size() / width; ++row) {
    const std::vector<float> numbers =
        FirstOfRow(x, static_cast<int>(row), size);
    const std::vector<double> expected = norm.Twin(numbers);
    const std::vector<double> tolerances =
        norm.Tolerances(numbers, expected, dtype);
    const float* const line = &got[row * width];
    for (int i = 0; i < size; ++i) {
      ASSERT_NEAR(line[i], expected[i], tolerances[i])
          << "size " << size << " row " << row << " at " << i;
    }
    for (int i = size; i < width; ++i) ASSERT_EQ(line[i], 0.0f);
  }
}

struct BranchCase {
  int num_partials = 0;
  bool has_bias = false;
  bool has_post_norm = false;
  bool is_layer_norm = false;
};

// The branch, in double.
std::vector<double> BranchTwin(const std::vector<float>& partials,
                               const std::vector<float>& bias,
                               const std::vector<float>& post_norm,
                               const BranchCase& c, int num_rows, int size) {
  const int width = WidthOf(size);
  std::vector<double> branch;
  for (int row = 0; row < num_rows; ++row) {
    std::vector<float> sums(size);
    for (int i = 0; i < size; ++i) {
      double sum = c.has_bias ? bias[i] : 0;
      for (int p = 0; p < c.num_partials; ++p) {
        sum += partials[(size_t(p) * num_rows + row) * width + i];
      }
      sums[i] = static_cast<float>(sum);
    }
    if (c.has_post_norm) {
      const auto normed =
          reference::RmsNorm(sums, FirstOfRow(post_norm, 0, size), kEpsilon);
      branch.insert(branch.end(), normed.begin(), normed.end());
    } else {
      branch.insert(branch.end(), sums.begin(), sums.end());
    }
  }
  return branch;
}

void ExpectAddsBranch(const BranchCase& c, int num_rows, int size,
                      DType dtype) {
  const int width = WidthOf(size);
  const std::vector<float> x = RandomRows(num_rows, size, 1);
  const std::vector<float> partials =
      RandomRows(std::max(c.num_partials, 1) * num_rows, size, 2);
  const std::vector<float> bias = RandomRows(1, size, 3);
  const std::vector<float> post_norm = RandomRows(1, size, 4);
  const TestNorm norm(size, c.is_layer_norm, 5);
  const DeviceArray stream(x, DType::kFloat32);
  const DeviceArray partial_array(partials, DType::kFloat32);
  const DeviceArray bias_array(bias, DType::kFloat32);
  const DeviceArray post_array(post_norm, DType::kFloat32);
  const auto out = DeviceArray::Poisoned(x.size(), dtype);
  CudaBranch branch = {.partials = {partial_array.floats(), c.num_partials}};
  if (c.has_bias) branch.bias = bias_array.floats();
  if (c.has_post_norm) branch.post_norm = post_array.floats();
  ASSERT_OK(CudaAddBranch(stream.floats(), branch, num_rows, norm.norm, dtype,
                          out.data(), nullptr));
  const std::vector<float> sums = stream.Read();
  const auto added = BranchTwin(partials, bias, post_norm, c, num_rows, size);
  const double roundings = 0x1p-24 * (size / 32.0 + 32);
  for (int row = 0; row < num_rows; ++row) {
    for (int i = 0; i < width; ++i) {
      const size_t at = size_t(row) * width + i;
      const double more = i < size ? added[size_t(row) * size + i] : 0;
      ASSERT_NEAR(sums[at], x[at] + more,
                  roundings * (std::abs(x[at]) + std::abs(more) + 8) *
                      (i < size ? 1 : 0))
          << "size " << size << " row " << row << " at " << i;
    }
  }
  ExpectNormed(sums, norm, out, dtype);
}

TEST(CudaAddBranchTest, MatchesTheTwinAtAnyWidthAndDType) {
  for (const int size :
       Cases(std::vector<int>{1, 8, 17, 30, 768, 1000, 2048, 2049, 2304, 4096,
                              4100, 8192, 8200, 16384},
             std::vector<int>{1, 30, 2304, 4100, 16384})) {
    for (const DType dtype : kDTypes) {
      for (const BranchCase& c :
           {BranchCase{0, true, false, true}, BranchCase{2, true, false, true},
            BranchCase{4, false, false, false},
            BranchCase{1, false, true, false}, BranchCase{4, true, true, false},
            BranchCase{0, true, false, false}}) {
        ExpectAddsBranch(c, size > 4096 ? 3 : 37, size, dtype);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

// As models have it that norm sums, or embeddings.
void ExpectReplacesX(int size, bool is_layer_norm, DType dtype) {
  const int num_rows = 5;
  const std::vector<float> x = RandomRows(num_rows, size, 1);
  const TestNorm norm(size, is_layer_norm, 2);
  CudaNorm replacing = norm.norm;
  replacing.replaces_x = true;
  const DeviceArray stream(x, DType::kFloat32);
  const auto out = DeviceArray::Poisoned(x.size(), dtype);
  ASSERT_OK(CudaAddBranch(stream.floats(), {}, num_rows, replacing, dtype,
                          out.data(), nullptr));
  ExpectNormed(x, norm, stream, DType::kFloat32);
  EXPECT_EQ(out.Read(), Rounded(stream.Read(), dtype));
}

// A norm without weights passes x on.
void ExpectPassesOn(int size, DType dtype) {
  const std::vector<float> x = RandomRows(5, size, 1);
  const std::vector<float> bias = RandomRows(1, size, 3);
  const DeviceArray stream(x, DType::kFloat32);
  const DeviceArray bias_array(bias, DType::kFloat32);
  const auto out = DeviceArray::Poisoned(x.size(), dtype);
  ASSERT_OK(CudaAddBranch(stream.floats(), {.bias = bias_array.floats()}, 5,
                          {.size = size, .width = WidthOf(size)}, dtype,
                          out.data(), nullptr));
  std::vector<float> sums = x;
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += bias[i % WidthOf(size)];
  EXPECT_EQ(stream.Read(), sums);
  EXPECT_EQ(out.Read(), Rounded(sums, dtype));
}

TEST(CudaAddBranchTest, ANormMayReplaceXOrPassItOn) {
  for (const int size : {8, 30, 768, 2304, 4100, 16384}) {
    for (const DType dtype : kDTypes) {
      ExpectReplacesX(size, true, dtype);
      ExpectReplacesX(size, false, dtype);
      ExpectPassesOn(size, dtype);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// The variance of numbers far from zero is not lost.
TEST(CudaAddBranchTest, ALayerNormTakesTheMeanOffFirst) {
  const int size = 1000;
  std::vector<float> x = RandomRows(2, size, 6);
  for (float& value : x) value += 300;
  const TestNorm norm(size, true, 7);
  const DeviceArray stream(x, DType::kFloat32);
  const auto out = DeviceArray::Poisoned(x.size(), DType::kFloat32);
  ASSERT_OK(CudaAddBranch(stream.floats(), {}, 2, norm.norm, DType::kFloat32,
                          out.data(), nullptr));
  ExpectNormed(x, norm, out, DType::kFloat32);
}

TEST(CudaAddBranchTest, ANanStaysInItsRow) {
  for (const bool is_layer_norm : {false, true}) {
    std::vector<float> x = RandomRows(3, 64, 8);
    x[64 + 10] = NAN;
    const TestNorm norm(64, is_layer_norm, 9);
    const DeviceArray stream(x, DType::kFloat32);
    const auto out = DeviceArray::Poisoned(x.size(), DType::kFloat32);
    ASSERT_OK(CudaAddBranch(stream.floats(), {}, 3, norm.norm, DType::kFloat32,
                            out.data(), nullptr));
    const std::vector<float> got = out.Read();
    for (int i = 0; i < 3 * 64; ++i) {
      EXPECT_EQ(std::isnan(got[i]), i / 64 == 1) << i;
    }
  }
}

TEST(CudaAddBranchTest, WhatItDoesNotTakeIsNamed) {
  CudaNorm norm = {.size = 12, .width = 12};
  EXPECT_THAT(
      CudaAddBranch(nullptr, {}, 1, norm, DType::kFloat32, nullptr, nullptr),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("12 is not a multiple of 8")));
  norm.size = norm.width = 16392;
  EXPECT_THAT(
      CudaAddBranch(nullptr, {}, 1, norm, DType::kFloat32, nullptr, nullptr),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("16392 is wider than 16384")));
  norm.size = norm.width = 8;
  const float weight = 1;
  EXPECT_THAT(CudaAddBranch(nullptr, {.post_norm = &weight}, 1, norm,
                            DType::kFloat32, nullptr, nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("a norm of what is added already")));
}

void ExpectEmbeds(int size, float scale, bool has_positions, bool is_layer_norm,
                  DType dtype) {
  const int width = WidthOf(size);
  const std::vector<float> table = RandomRows(9, size, 10);
  const std::vector<float> position_table = RandomRows(7, size, 11);
  const TestNorm norm(size, is_layer_norm, 12);
  const DeviceArray table_array(table, dtype);
  const DeviceArray position_array(position_table, dtype);
  CudaEmbedding embedding = {.tokens = {table_array.data(), dtype, 9, width},
                             .scale = scale};
  if (has_positions) {
    embedding.positions = {position_array.data(), dtype, 7, width};
    embedding.token_without_position = 8;
  }
  const std::vector<int> tokens = {3, 8, 0, 3}, positions = {6, 0, 5, 1};
  const DeviceBuffer<int> token_buffer = DeviceInts(tokens);
  const DeviceBuffer<int> position_buffer = DeviceInts(positions);
  const auto x = DeviceArray::Poisoned(4 * width, DType::kFloat32);
  const auto normed = DeviceArray::Poisoned(4 * width, dtype);
  ASSERT_OK(CudaEmbedTokens(token_buffer.data(), position_buffer.data(), 4,
                            embedding, norm.norm, x.floats(), normed.data(),
                            nullptr));
  const std::vector<float> rows = Rounded(table, dtype);
  const std::vector<float> position_rows = Rounded(position_table, dtype);
  const std::vector<float> got = x.Read();
  for (int t = 0; t < 4; ++t) {
    for (int i = 0; i < width; ++i) {
      double expected = double{rows[tokens[t] * width + i]} * scale;
      if (has_positions && tokens[t] != 8) {
        expected += position_rows[positions[t] * width + i];
      }
      // One rounding of each: of the product, then of the sum.
      const double most =
          std::abs(double{rows[tokens[t] * width + i]} * scale) +
          std::abs(expected);
      ASSERT_NEAR(got[t * width + i], expected, most * 0x1p-24) << size;
    }
  }
  ExpectNormed(got, norm, normed, dtype);
}

TEST(CudaEmbedTokensTest, ScalesRowsAddsPositionsAndNormalisesThem) {
  for (const int size : {30, 40, 768, 2304, 4100}) {
    for (const DType dtype : kDTypes) {
      ExpectEmbeds(size, 1, true, true, dtype);
      ExpectEmbeds(size, 6.3125f, false, false, dtype);
      ExpectEmbeds(size, 6.3125f, true, false, dtype);
      ExpectEmbeds(size, 1, false, true, dtype);
    }
  }
}

TEST(CudaEmbedTokensTest, TablesThatDoNotFitAreNamed) {
  const float number = 1;
  const CudaNorm norm = {.size = 8, .width = 8};
  CudaEmbedding embedding = {.tokens = {&number, DType::kFloat32, 9, 8},
                             .positions = {&number, DType::kFloat32, 9, 16}};
  const auto embed = [&] {
    return CudaEmbedTokens(nullptr, nullptr, 1, embedding, norm, nullptr,
                           nullptr, nullptr);
  };
  EXPECT_THAT(embed(), StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("a table of 16 columns")));
  embedding.positions = {&number, DType::kFloat16, 9, 8};
  EXPECT_THAT(embed(), StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("two dtypes")));
}

}  // namespace
}  // namespace espalier
