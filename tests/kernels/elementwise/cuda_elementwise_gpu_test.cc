#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/elementwise/cuda_elementwise.h"
#include "kernels/elementwise/elementwise.h"
#include "tests/kernels/float_arrays.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::DeviceArray;
using ::espalier::testing::DeviceInts;
using ::espalier::testing::kDTypes;
using ::espalier::testing::kPoison;
using ::espalier::testing::RandomFloats;
using ::espalier::testing::Rounded;
using ::espalier::testing::StatusIs;
using ::espalier::testing::Unit;
using ::testing::Each;
using ::testing::HasSubstr;

// Rows of `size` numbers, and zeros up to a multiple of 8.
struct PaddedRows {
  PaddedRows(int num_rows, int size, int seed)
      : width((size + 7) / 8 * 8), values(size_t(num_rows) * width) {
    const std::vector<float> numbers =
        RandomFloats(size_t(num_rows) * size, seed);
    for (int row = 0; row < num_rows; ++row) {
      std::copy_n(&numbers[size_t(row) * size], size,
                  &values[size_t(row) * width]);
    }
  }
  std::vector<float> Row(int row, int size) const {
    const auto begin = values.begin() + int64_t{row} * width;
    return {begin, begin + size};
  }
  int width;
  std::vector<float> values;
};

TEST(CudaRmsNormTest, MatchesTheTwinAtAnyWidthAndDType) {
  for (const int size :
       {1, 8, 17, 256, 768, 1000, 2048, 4096, 5000, 8192, 16384}) {
    const int num_rows = size > 4096 ? 3 : 301;
    const PaddedRows x(num_rows, size, size);
    const PaddedRows weight(1, size, size + 1);
    const DeviceArray x_array(x.values, DType::kFloat32);
    const DeviceArray weight_array(weight.values, DType::kFloat32);
    const CudaNorm norm = {weight_array.floats(), size, x.width, 1e-5f};
    for (const DType dtype : kDTypes) {
      const auto out = DeviceArray::Poisoned(x.values.size(), dtype);
      ASSERT_OK(CudaRmsNorm(x_array.floats(), num_rows, norm, dtype, out.data(),
                            nullptr));
      const std::vector<float> got = out.Read();
      for (const int row : {0, 1, num_rows - 1}) {
        const auto expected =
            reference::RmsNorm(x.Row(row, size), weight.Row(0, size), 1e-5f);
        const float* line = &got[size_t(row) * x.width];
        for (int i = 0; i < size; ++i) {
          // Below its normal numbers float16 rounds to multiples of 2^-24.
          const double tolerance =
              std::abs(expected[i]) *
                  (0x1p-24 * (size / 32.0 + 16) + 1.01 * Unit(dtype)) +
              (dtype == DType::kFloat16 ? 0x1p-25 : 0);
          ASSERT_NEAR(line[i], expected[i], tolerance)
              << "size " << size << " row " << row << " at " << i;
        }
        for (int i = size; i < x.width; ++i) ASSERT_EQ(line[i], 0.0f);
      }
    }
  }
}

TEST(CudaRmsNormTest, ARowHasTheSameBitsAmongAnyOthers) {
  const PaddedRows x(40, 768, 3);
  const PaddedRows weight(1, 768, 4);
  const DeviceArray x_array(x.values, DType::kFloat32);
  const DeviceArray weight_array(weight.values, DType::kFloat32);
  const CudaNorm norm = {weight_array.floats(), 768, 768, 1e-6f};
  const auto all = DeviceArray::Poisoned(40 * 768, DType::kFloat32);
  const auto one = DeviceArray::Poisoned(768, DType::kFloat32);
  ASSERT_OK(CudaRmsNorm(x_array.floats(), 40, norm, DType::kFloat32, all.data(),
                        nullptr));
  ASSERT_OK(CudaRmsNorm(x_array.floats() + 7 * 768, 1, norm, DType::kFloat32,
                        one.data(), nullptr));
  const std::vector<float> lines = all.Read();
  EXPECT_EQ(one.Read(), std::vector<float>(lines.begin() + 7 * 768,
                                           lines.begin() + 8 * 768));
}

TEST(CudaAddRmsNormTest, AddsThenNormalises) {
  constexpr int kRows = 5;
  for (const int size : {8, 1000, 4096, 16384}) {
    const std::vector<float> weight = RandomFloats(size, 1);
    const std::vector<float> x = RandomFloats(size_t{kRows} * size, 2);
    const DeviceArray weight_array(weight, DType::kFloat32);
    const CudaNorm norm = {weight_array.floats(), size, size, 1e-5f};
    for (const int count : {0, 2, 4}) {
      const std::vector<float> addends =
          RandomFloats(size_t{kRows} * size * std::max(count, 1), 3);
      std::vector<float> sums = x;
      for (size_t i = 0; i < count * x.size(); ++i) {
        sums[i % x.size()] += addends[i];
      }
      const DeviceArray sums_array(sums, DType::kFloat32);
      const DeviceArray addends_array(addends, DType::kFloat32);
      for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
        const auto out = DeviceArray::Poisoned(x.size(), dtype);
        const auto expected = DeviceArray::Poisoned(x.size(), dtype);
        const DeviceArray added(x, DType::kFloat32);
        ASSERT_OK(CudaAddRmsNorm(added.floats(),
                                 {addends_array.floats(), count}, kRows, norm,
                                 dtype, out.data(), nullptr));
        ASSERT_OK(CudaRmsNorm(sums_array.floats(), kRows, norm, dtype,
                              expected.data(), nullptr));
        ASSERT_EQ(added.Read(), sums) << "size " << size << " count " << count;
        // Squares may be summed in another order, and so round the other way.
        const double tolerance = 0x1p-24 * (size / 32.0 + 16) + 2 * Unit(dtype);
        const std::vector<float> lines = expected.Read();
        const std::vector<float> got = out.Read();
        for (size_t i = 0; i < got.size(); ++i) {
          ASSERT_NEAR(got[i], lines[i], std::abs(lines[i]) * tolerance) << i;
        }
      }
    }
  }
}

TEST(CudaRmsNormTest, ANanStaysInItsRow) {
  std::vector<float> x = RandomFloats(3 * 64, 5);
  x[64 + 10] = NAN;
  const DeviceArray x_array(x, DType::kFloat32);
  const DeviceArray weight(std::vector<float>(64, 1.0f), DType::kFloat32);
  const auto out = DeviceArray::Poisoned(3 * 64, DType::kFloat32);
  ASSERT_OK(CudaRmsNorm(x_array.floats(), 3, {weight.floats(), 64, 64, 1e-6f},
                        DType::kFloat32, out.data(), nullptr));
  const std::vector<float> got = out.Read();
  for (int i = 0; i < 3 * 64; ++i) {
    EXPECT_EQ(std::isnan(got[i]), i / 64 == 1) << i;
  }
}

TEST(CudaRmsNormTest, WidthsOutOfRangeAreNamed) {
  const auto run = [](int width) {
    return CudaRmsNorm(nullptr, 1, {nullptr, width, width, 1e-6f},
                       DType::kFloat32, nullptr, nullptr);
  };
  EXPECT_THAT(run(12), StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("12 is not a multiple of 8")));
  EXPECT_THAT(run(16392), StatusIs(absl::StatusCode::kInvalidArgument,
                                   HasSubstr("16392 is wider than 16384")));
}

TEST(CudaEmbedTest, CopiesRowsAndNormalisesThem) {
  const int size = 100;
  const PaddedRows table(9, size, 6);
  const PaddedRows weight(1, size, 7);
  const DeviceArray weight_array(weight.values, DType::kFloat32);
  const CudaNorm norm = {weight_array.floats(), size, table.width, 1e-5f};
  const std::vector<int> tokens = {3, 8, 0, 3};
  const DeviceBuffer<int> token_buffer = DeviceInts(tokens);
  for (const DType dtype : kDTypes) {
    const DeviceArray table_array(table.values, dtype);
    const CudaMatrix embedding = {table_array.data(), dtype, 9, table.width};
    const auto x = DeviceArray::Poisoned(4 * table.width, DType::kFloat32);
    const auto normed = DeviceArray::Poisoned(4 * table.width, dtype);
    const auto alone = DeviceArray::Poisoned(4 * table.width, dtype);
    ASSERT_OK(CudaEmbed(token_buffer.data(), 4, embedding, norm, x.floats(),
                        normed.data(), nullptr));
    ASSERT_OK(CudaRmsNorm(x.floats(), 4, norm, dtype, alone.data(), nullptr));
    const std::vector<float> rounded = Rounded(table.values, dtype);
    const std::vector<float> got = x.Read();
    for (int t = 0; t < 4; ++t) {
      for (int i = 0; i < table.width; ++i) {
        ASSERT_EQ(got[t * table.width + i],
                  rounded[tokens[t] * table.width + i]);
      }
    }
    EXPECT_EQ(normed.Read(), alone.Read());
  }
}

TEST(CudaGatherRowsTest, CopiesNamedRowsOfBoth) {
  const std::vector<float> a = RandomFloats(10 * 4, 10);
  const std::vector<float> b = RandomFloats(10 * 2052, 11);
  const DeviceArray from_a(a, DType::kFloat32);
  const DeviceArray from_b(b, DType::kFloat32);
  const auto to_a = DeviceArray::Poisoned(3 * 4, DType::kFloat32);
  const auto to_b = DeviceArray::Poisoned(3 * 2052, DType::kFloat32);
  const std::vector<int> rows = {9, 0, 4};
  const DeviceBuffer<int> row_buffer = DeviceInts(rows);
  ASSERT_OK(CudaGatherRows(row_buffer.data(), 3,
                           {from_a.data(), to_a.data(), 4 * 4},
                           {from_b.data(), to_b.data(), 2052 * 4}, nullptr));
  const std::vector<float> got_a = to_a.Read();
  const std::vector<float> got_b = to_b.Read();
  for (int r = 0; r < 3; ++r) {
    for (int i = 0; i < 4; ++i) {
      ASSERT_EQ(got_a[r * 4 + i], a[rows[r] * 4 + i]);
    }
    for (int i = 0; i < 2052; ++i) {
      ASSERT_EQ(got_b[r * 2052 + i], b[rows[r] * 2052 + i]);
    }
  }
}

TEST(CudaSoftCapTest, CapsEveryNumberAndNoOther) {
  for (const size_t size : {1, 3, 4, 1023, 1024, 1025, 70001}) {
    std::vector<float> x = RandomFloats(size, 12);
    for (size_t i = 0; i < size; i += 7) x[i] *= 100;
    x[size / 2] = size % 2 == 0 ? INFINITY : NAN;
    std::vector<float> padded = x;
    padded.resize(size + 5, kPoison);
    for (const float cap : {0.5f, 30.0f}) {
      const DeviceArray array(padded, DType::kFloat32);
      ASSERT_OK(CudaSoftCap(cap, size, array.floats(), nullptr));
      const std::vector<float> got = array.Read();
      for (size_t i = 0; i < size; ++i) {
        if (std::isnan(x[i])) {
          ASSERT_TRUE(std::isnan(got[i]));
          continue;
        }
        const double expected = cap * std::tanh(double{x[i]} / cap);
        ASSERT_NEAR(got[i], expected, std::abs(expected) * 0x1p-21) << x[i];
      }
      EXPECT_THAT(std::vector<float>(got.begin() + size, got.end()),
                  Each(kPoison));
    }
  }
}

TEST(CudaAddToRowsTest, AddsToEveryRowAndNoFurther) {
  for (const auto& [num_rows, size] :
       {std::pair(1, 1), std::pair(3, 255), std::pair(2, 256),
        std::pair(5, 257), std::pair(4, 1001)}) {
    std::vector<float> x = RandomFloats(size_t(num_rows) * size, 13);
    x[0] = NAN;
    std::vector<float> padded = x;
    padded.resize(x.size() + 5, kPoison);
    const std::vector<float> bias = RandomFloats(size, 14);
    const DeviceArray array(padded, DType::kFloat32);
    const DeviceArray bias_array(bias, DType::kFloat32);
    ASSERT_OK(CudaAddToRows(bias_array.floats(), num_rows, size, array.floats(),
                            nullptr));
    const std::vector<float> got = array.Read();
    EXPECT_TRUE(std::isnan(got[0]));
    for (size_t i = 1; i < x.size(); ++i) {
      ASSERT_EQ(got[i], x[i] + bias[i % size]) << size << " at " << i;
    }
    EXPECT_THAT(std::vector<float>(got.begin() + x.size(), got.end()),
                Each(kPoison));
  }
}

TEST(CudaFillNormalTest, FillsColumnsWithAReproducibleNormalDistribution) {
  const int num_rows = 5000, num_cols = 60, stride = 64;
  for (const DType dtype : kDTypes) {
    const auto w = DeviceArray::Poisoned(num_rows * stride, dtype);
    const auto again = DeviceArray::Poisoned(num_rows * stride, dtype);
    const auto other = DeviceArray::Poisoned(num_rows * stride, dtype);
    for (const auto& [array, seed] :
         {std::pair(&w, 1), std::pair(&again, 1), std::pair(&other, 2)}) {
      ASSERT_OK(CudaFillNormal(array->data(), dtype, num_rows, num_cols, stride,
                               0.02f, seed, nullptr));
    }
    const std::vector<float> values = w.Read();
    EXPECT_EQ(values, again.Read());
    EXPECT_NE(values, other.Read());
    double sum = 0, squares = 0, within_one = 0;
    for (int row = 0; row < num_rows; ++row) {
      for (int col = 0; col < num_cols; ++col) {
        const double value = values[row * stride + col];
        sum += value;
        squares += value * value;
        within_one += std::abs(value) < 0.02;
      }
      const auto line = values.begin() + row * stride;
      EXPECT_THAT(std::vector<float>(line + num_cols, line + stride),
                  Each(Rounded({kPoison}, dtype)[0]));
    }
    // Standard errors: 0.0018 deviations, 0.13 % and 0.0009.
    const double count = double(num_rows) * num_cols;
    EXPECT_NEAR(sum / count / 0.02, 0, 0.01);
    EXPECT_NEAR(std::sqrt(squares / count) / 0.02, 1, 0.01);
    EXPECT_NEAR(within_one / count, 0.6827, 0.005);
  }
}

}  // namespace
}  // namespace espalier
