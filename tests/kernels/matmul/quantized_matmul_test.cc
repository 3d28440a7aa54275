// Products of quantised weights against their twin, which they equal bit for
// bit on every instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <tuple>
#include <vector>

#include "kernels/matmul/matmul.h"
#include "tests/kernels/each_target.h"

namespace espalier {
namespace {

// The Highway target for which only byte products are compiled.
constexpr int64_t kByteProducts = int64_t{1} << 7;

// Returns the enabled targets for `target`: kernels without code for it run on
// the level below.
int64_t TargetsFor(int64_t target) {
#if HWY_ARCH_X86
  if (target == kByteProducts) return kByteProducts | HWY_AVX3;
#endif
  return target;
}

std::vector<int64_t> QuantizedTargets() {
  std::vector<int64_t> targets = Targets();
#if HWY_ARCH_X86
  static const bool has_byte_products =
      (hwy::SupportedTargets() & kByteProducts) != 0;
  if (has_byte_products) targets.push_back(kByteProducts);
#endif
  return targets;
}

std::vector<float> RandomNumbers(int count, int seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(count);
  for (float& value : numbers)
    value = normal(random) * std::exp(normal(random));
  return numbers;
}

PackedMatrix Quantize(const std::vector<float>& w, int num_cols,
                      WeightFormat format, ThreadPool& pool) {
  const PackedMatrix::Part part = {std::as_bytes(std::span(w)), DType::kFloat32,
                                   static_cast<int>(w.size() / num_cols)};
  return PackedMatrix::Pack({&part, 1}, num_cols, pool, format);
}

std::vector<float> MultiplyQuantized(std::span<const float> x,
                                     const PackedMatrix& w,
                                     int num_threads = 1) {
  const auto pool = ThreadPool::Create(num_threads).value();
  std::vector<float> y(x.size() / w.num_cols() * w.num_rows(), -1.0f);
  MatMul(x, w, y, *pool);
  return y;
}

constexpr WeightFormat kFormats[] = {WeightFormat::kInt8, WeightFormat::kInt4};

class QuantizedMatMulTest
    : public ::testing::TestWithParam<std::tuple<int64_t, WeightFormat>> {
 protected:
  WeightFormat format() const { return std::get<1>(GetParam()); }

 private:
  TargetChoice choice_{TargetsFor(std::get<0>(GetParam()))};
};

INSTANTIATE_TEST_SUITE_P(
    Formats, QuantizedMatMulTest,
    ::testing::Combine(::testing::ValuesIn(QuantizedTargets()),
                       ::testing::ValuesIn(kFormats)));

TEST_P(QuantizedMatMulTest, IsItsTwin) {
  ThreadPool pool;
  for (const int num_cols : {1, 5, 31, 64, 127, 130, 256, 700}) {
    for (const int num_outputs : {1, 31, 32, 100}) {
      const auto w = RandomNumbers(num_outputs * num_cols, 1);
      const PackedMatrix packed = Quantize(w, num_cols, format(), pool);
      for (const int n : {1, 2, 7, 13}) {
        const auto x = RandomNumbers(n * num_cols, n);
        ASSERT_EQ(MultiplyQuantized(x, packed),
                  reference::QuantizedMatMul(x, w, num_cols, format()))
            << n << " rows of " << num_cols << ", " << num_outputs
            << " outputs";
      }
    }
  }
}

TEST_P(QuantizedMatMulTest, ARowAloneHasTheBitsOfThatRowAmongOthers) {
  ThreadPool pool;
  const int num_cols = 300, num_outputs = 70;
  const PackedMatrix w = Quantize(RandomNumbers(num_outputs * num_cols, 3),
                                  num_cols, format(), pool);
  for (int n = 1; n <= 20; ++n) {
    const auto x = RandomNumbers(n * num_cols, n);
    const auto together = MultiplyQuantized(x, w);
    EXPECT_EQ(together, MultiplyQuantized(x, w, 3));
    for (int i = 0; i < n; ++i) {
      const auto row = std::span(x).subspan(i * num_cols, num_cols);
      ASSERT_TRUE(std::ranges::equal(
          MultiplyQuantized(row, w),
          std::span(together).subspan(i * num_outputs, num_outputs)))
          << "row " << i << " of " << n;
    }
  }
}

// Ties, the ends of the integers' range, zeros, and rows without a scale.
TEST_P(QuantizedMatMulTest, EdgesAreThoseOfItsTwin) {
  ThreadPool pool;
  const int num_cols = 40;
  std::vector<float> w;
  for (const float largest : {0.0f, 0x1p-120f, 0x1p-99f, 1.0f, -127.0f, 8.0f,
                              -8.0f, 0x1p100f, 1e34f}) {
    for (int k = 0; k < num_cols; ++k) {
      w.push_back(largest * (static_cast<float>(k % 17) / 16.0f));
      if (k % 3 == 0) w.back() = -w.back();
    }
  }
  std::vector<float> x;
  for (const float largest : {1.0f, 127.0f, 0x1p-120f, 0.0f}) {
    for (int k = 0; k < num_cols; ++k) {
      x.push_back(largest * (static_cast<float>(k % 9) / 8.0f - 0.5f));
    }
  }
  EXPECT_EQ(MultiplyQuantized(x, Quantize(w, num_cols, format(), pool)),
            reference::QuantizedMatMul(x, w, num_cols, format()));
}

TEST_P(QuantizedMatMulTest, NonFiniteNumbersMakeTheirRowsAndOutputsNan) {
  ThreadPool pool;
  const int num_cols = 70, num_outputs = 40;
  for (const float bad : {NAN, std::numeric_limits<float>::infinity()}) {
    std::vector<float> w = RandomNumbers(num_outputs * num_cols, 1);
    w[5 * num_cols + 65] = bad;
    std::vector<float> x = RandomNumbers(3 * num_cols, 2);
    x[num_cols + 69] = -bad;
    const auto y = MultiplyQuantized(x, Quantize(w, num_cols, format(), pool));
    for (int i = 0; i < 3 * num_outputs; ++i) {
      EXPECT_EQ(std::isnan(y[i]), i / num_outputs == 1 || i % num_outputs == 5)
          << i;
    }
  }
}

// As near as the sizes of the integers' steps allow.
TEST_P(QuantizedMatMulTest, IsNearTheProductOfTheWeightsThemselves) {
  ThreadPool pool;
  const int num_cols = 256, num_outputs = 64;
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> w(num_outputs * num_cols), x(num_cols);
  for (float& value : w) value = normal(random);
  for (float& value : x) value = normal(random);
  const auto y = MultiplyQuantized(x, Quantize(w, num_cols, format(), pool));
  const auto exact = reference::MatMul(x, w, num_cols);
  double error = 0, size = 0;
  for (int i = 0; i < num_outputs; ++i) {
    error += (y[i] - exact[i]) * (y[i] - exact[i]);
    size += exact[i] * exact[i];
  }
  EXPECT_LT(std::sqrt(error / size),
            format() == WeightFormat::kInt4 ? 0.15 : 0.02);
}

TEST(QuantizedPackTest, TypesThreadsAndTranspositionChangeNothing) {
  const int num_rows = 75, num_cols = 150;
  std::vector<float> w = RandomNumbers(num_rows * num_cols, 4);
  std::vector<std::byte> halves;  // bf16
  std::vector<float> transposed(w.size());
  for (size_t i = 0; i < w.size(); ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(w[i]) & 0xFFFF0000u;
    w[i] = std::bit_cast<float>(bits);
    halves.push_back(static_cast<std::byte>(bits >> 16));
    halves.push_back(static_cast<std::byte>(bits >> 24));
    transposed[i % num_cols * num_rows + i / num_cols] = w[i];
  }
  const auto pool = ThreadPool::Create(3).value();
  const auto x = RandomNumbers(num_cols, 5);
  for (const WeightFormat format : kFormats) {
    const auto expected = reference::QuantizedMatMul(x, w, num_cols, format);
    const PackedMatrix::Part parts[] = {{halves, DType::kBFloat16, num_rows},
                                        {std::as_bytes(std::span(transposed)),
                                         DType::kFloat32, num_rows, true}};
    for (const PackedMatrix::Part& part : parts) {
      EXPECT_EQ(MultiplyQuantized(
                    x, PackedMatrix::Pack({&part, 1}, num_cols, *pool, format)),
                expected);
    }
  }
}

}  // namespace
}  // namespace espalier
