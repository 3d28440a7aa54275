#include "kernels/matmul/matmul.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <tuple>
#include <vector>

#include "base/load_as_float.h"
#include "kernels/matmul/matmul_tile.h"
#include "tests/kernels/each_target.h"

namespace espalier {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16,
                             DType::kFloat16};

// A weight matrix in three forms: as in a file, packed, and widened.
struct Weights {
  std::vector<std::byte> bytes;
  PackedMatrix packed;
  std::vector<float> widened;
};

void AppendNumber(float value, DType dtype, std::vector<std::byte>& bytes) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if (dtype == DType::kBFloat16) bits >>= 16;
  // A half with a sign, an exponent near 1 and some mantissa.
  if (dtype == DType::kFloat16) bits = 0x3000u + (bits >> 12 & 0x8FFFu);
  const auto* begin = reinterpret_cast<const std::byte*>(&bits);
  bytes.insert(bytes.end(), begin, begin + NumBytes(dtype));
}

PackedMatrix PackAlone(const PackedMatrix::Part& part, int num_cols) {
  ThreadPool pool;
  return PackedMatrix::Pack({&part, 1}, num_cols, pool);
}

Weights RandomWeights(int num_rows, int num_cols, DType dtype, int seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Weights w;
  for (int i = 0; i < num_rows * num_cols; ++i) {
    AppendNumber(normal(random), dtype, w.bytes);
    w.widened.push_back(
        LoadAsFloat(&w.bytes[size_t(i) * NumBytes(dtype)], dtype));
  }
  const PackedMatrix::Part part = {w.bytes, dtype, num_rows};
  w.packed = PackAlone(part, num_cols);
  return w;
}

// Numbers of very different size, so that every order of adding shows.
std::vector<float> RandomInputs(int count, int seed = 2) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(count);
  for (float& value : x) value = normal(random) * std::exp(normal(random));
  return x;
}

std::vector<float> Multiply(std::span<const float> x, const PackedMatrix& w,
                            int num_threads = 1) {
  const auto pool = ThreadPool::Create(num_threads).value();
  std::vector<float> y(x.size() / w.num_cols() * w.num_rows(), NAN);
  MatMul(x, w, y, *pool);
  return y;
}

std::vector<float> Slice(std::span<const float> x, size_t begin, size_t size) {
  const auto part = x.subspan(begin, size);
  return {part.begin(), part.end()};
}

class MatMulTest
    : public ::testing::TestWithParam<std::tuple<int64_t, DType, int, int>> {
 protected:
  int64_t target() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()); }
  int num_cols() const { return std::get<2>(GetParam()); }
  int num_outputs() const { return std::get<3>(GetParam()); }

 private:
  TargetChoice choice_{target()};
};

INSTANTIATE_TEST_SUITE_P(
    Shapes, MatMulTest,
    ::testing::Combine(EachTarget(),
                       ::testing::Values(DType::kFloat32, DType::kBFloat16,
                                         DType::kFloat16),
                       ::testing::Values(1, 7, 256, 257, 700),
                       ::testing::Values(1, 31, 32, 33, 100, 330)));

using MatMulLawsTest = TargetTest;
INSTANTIATE_TEST_SUITE_P(Targets, MatMulLawsTest, EachTarget(), TargetTestName);

TEST_P(MatMulTest, IsAsNearToTheTwinAsItsLengthAllows) {
  const Weights w = RandomWeights(num_outputs(), num_cols(), dtype());
  std::vector<float> magnitudes = w.widened;
  for (float& value : magnitudes) value = std::abs(value);
  for (const int n : {1, 3, 13, 26}) {
    const std::vector<float> x = RandomInputs(n * num_cols());
    std::vector<float> x_magnitudes = x;
    for (float& value : x_magnitudes) value = std::abs(value);
    const auto expected = reference::MatMul(x, w.widened, num_cols());
    const auto sizes = reference::MatMul(x_magnitudes, magnitudes, num_cols());
    const auto y = Multiply(x, w.packed);
    for (size_t i = 0; i < y.size(); ++i) {
      // A chain of k steps of one or two roundings, each at most half a unit
      // in the last place.
      const int roundings = HasFusedMultiplyAdd(target()) ? 1 : 2;
      const double tolerance = sizes[i] * num_cols() * roundings * 0x1p-24;
      ASSERT_NEAR(y[i], expected[i], tolerance) << "n " << n << " at " << i;
    }
  }
}

// Fused multiply-adds, if the instruction set has them.
TEST_P(MatMulTest, EveryOutputIsOneChainOfMultiplyAdds) {
  const Weights w = RandomWeights(num_outputs(), num_cols(), dtype());
  const std::vector<float> x = RandomInputs(5 * num_cols());
  const std::vector<float> y = Multiply(x, w.packed);
  for (int i = 0; i < 5 * num_outputs(); ++i) {
    const float* a = &x[i / num_outputs() * num_cols()];
    const float* b = &w.widened[i % num_outputs() * num_cols()];
    float chain = 0;
    for (int k = 0; k < num_cols(); ++k) {
      chain = MultiplyAdd(a[k], b[k], chain, target());
    }
    ASSERT_EQ(y[i], chain) << "output " << i;
  }
}

TEST_P(MatMulLawsTest, ARowAloneHasTheBitsOfThatRowAmongOthers) {
  for (const DType dtype : kDTypes) {
    const int num_cols = 300, num_outputs = 70;
    const Weights w = RandomWeights(num_outputs, num_cols, dtype);
    for (int n = 1; n <= 40; ++n) {
      const std::vector<float> x = RandomInputs(n * num_cols, n);
      const std::vector<float> together = Multiply(x, w.packed);
      for (int i = 0; i < n; ++i) {
        ASSERT_EQ(Multiply(Slice(x, i * num_cols, num_cols), w.packed),
                  Slice(together, i * num_outputs, num_outputs))
            << "row " << i << " of " << n;
      }
    }
  }
}

TEST_P(MatMulLawsTest, ThreadsChangeNoBits) {
  const Weights w = RandomWeights(1000, 520, DType::kBFloat16);
  for (const int n : {1, 2, 30, 100}) {
    const std::vector<float> x = RandomInputs(n * 520);
    const std::vector<float> alone = Multiply(x, w.packed, 1);
    for (const int num_threads : {2, 3}) {
      ASSERT_EQ(Multiply(x, w.packed, num_threads), alone) << "n " << n;
    }
  }
}

TEST_P(MatMulLawsTest, NonFiniteNumbersStayInTheirOwnRowsAndOutputs) {
  const float inf = std::numeric_limits<float>::infinity();
  Weights w = RandomWeights(40, 64, DType::kFloat32);
  std::memcpy(&w.bytes[(5 * 64 + 3) * 4], &inf, 4);
  const PackedMatrix::Part part = {w.bytes, DType::kFloat32, 40};
  const PackedMatrix packed = PackAlone(part, 64);
  std::vector<float> x = RandomInputs(3 * 64);
  x[64 + 10] = NAN;
  const std::vector<float> y = Multiply(x, packed);
  for (int i = 0; i < 3 * 40; ++i) {
    EXPECT_EQ(std::isnan(y[i]), i / 40 == 1) << i;
    EXPECT_EQ(std::isinf(y[i]), i / 40 != 1 && i % 40 == 5) << i;
  }
}

TEST_P(MatMulLawsTest, NoRowsAreNoWork) {
  const Weights w = RandomWeights(4, 8, DType::kFloat32);
  EXPECT_TRUE(Multiply({}, w.packed).empty());
}

TEST(PackedMatrixTest, StackedPartsOfAnyTypeGiveTheirOutputsSideBySide) {
  const int num_cols = 50;
  const Weights a = RandomWeights(20, num_cols, DType::kBFloat16, 1);
  const Weights b = RandomWeights(45, num_cols, DType::kFloat16, 2);
  const Weights c = RandomWeights(3, num_cols, DType::kBFloat16, 3);
  const PackedMatrix::Part parts[] = {{a.bytes, DType::kBFloat16, 20},
                                      {b.bytes, DType::kFloat16, 45},
                                      {c.bytes, DType::kBFloat16, 3}};
  ThreadPool pool;
  const PackedMatrix stacked = PackedMatrix::Pack(parts, num_cols, pool);
  EXPECT_EQ(stacked.num_rows(), 68);
  const std::vector<float> x = RandomInputs(num_cols);
  std::vector<float> expected = Multiply(x, a.packed);
  for (const PackedMatrix* w : {&b.packed, &c.packed}) {
    const std::vector<float> y = Multiply(x, *w);
    expected.insert(expected.end(), y.begin(), y.end());
  }
  EXPECT_EQ(Multiply(x, stacked), expected);
}

TEST(PackedMatrixTest, DataNeedNotBeAligned) {
  const Weights w = RandomWeights(10, 10, DType::kFloat32);
  std::vector<std::byte> shifted(w.bytes.size() + 1);
  std::copy(w.bytes.begin(), w.bytes.end(), shifted.begin() + 1);
  const PackedMatrix::Part part = {std::span(shifted).subspan(1),
                                   DType::kFloat32, 10};
  const std::vector<float> x = RandomInputs(10);
  EXPECT_EQ(Multiply(x, PackAlone(part, 10)), Multiply(x, w.packed));
}

std::vector<std::byte> PanelsOf(const PackedMatrix& w) {
  return {w.panel(0, 0), w.panel(0, 0) + w.num_bytes()};
}

// Returns the index of a panel row's weight among those of its column: in bf16
// the halves of the rows alternate.
int LaneOf(int row, DType dtype) {
  const int half = kPanelWidth / 2;
  return dtype == DType::kBFloat16 ? row % half * 2 + row / half : row;
}

// Block by block of columns.
TEST(PackedMatrixTest, PanelsHaveTheWeightsColumnByColumnAndZerosBehindThem) {
  const int num_rows = 75, num_cols = kBlockDepth + 21;
  for (const DType dtype : kDTypes) {
    const Weights w = RandomWeights(num_rows, num_cols, dtype);
    EXPECT_EQ(w.packed.dtype(), dtype);
    const std::byte* next = w.packed.panel(0, 0);
    for (int k = 0; k < num_cols; ++k) {
      for (int row = 0; k % kBlockDepth == 0 && row < num_rows;
           row += kPanelWidth) {
        EXPECT_EQ(w.packed.panel(k, row / kPanelWidth), next);
        next += w.packed.panel_bytes(k);
      }
      for (int row = 0; row < 3 * kPanelWidth; ++row) {
        const int k_in_block = k % kBlockDepth;
        const std::byte* weight =
            w.packed.panel(k - k_in_block, row / kPanelWidth) +
            (k_in_block * kPanelWidth + LaneOf(row % kPanelWidth, dtype)) *
                NumBytes(dtype);
        ASSERT_EQ(LoadAsFloat(weight, dtype),
                  row < num_rows ? w.widened[row * num_cols + k] : 0.0f)
            << "row " << row << ", k " << k;
      }
    }
    EXPECT_EQ(next, w.packed.panel(0, 0) + w.packed.num_bytes());
  }
}

TEST(PackedMatrixTest, ThreadsPackTheSamePanels) {
  const Weights w = RandomWeights(500, 77, DType::kFloat16);
  const auto pool = ThreadPool::Create(3).value();
  const PackedMatrix::Part part = {w.bytes, DType::kFloat16, 500};
  EXPECT_EQ(PanelsOf(PackedMatrix::Pack({&part, 1}, 77, *pool)),
            PanelsOf(w.packed));
}

TEST(PackedMatrixTest, TransposedPartsGiveThePanelsOfTheirRows) {
  for (const DType dtype : kDTypes) {
    const int num_rows = 75, num_cols = 21, element = NumBytes(dtype);
    const Weights w = RandomWeights(num_rows, num_cols, dtype);
    std::vector<std::byte> transposed(w.bytes.size());
    for (int i = 0; i < num_rows * num_cols; ++i) {
      const int to = i % num_cols * num_rows + i / num_cols;
      std::copy_n(&w.bytes[size_t(i) * element], element,
                  &transposed[size_t(to) * element]);
    }
    const PackedMatrix::Part part = {transposed, dtype, num_rows, true};
    EXPECT_EQ(PanelsOf(PackAlone(part, num_cols)), PanelsOf(w.packed));
    // Widened, because of the part beside it.
    const float one_row[num_cols] = {};
    const PackedMatrix::Part parts[] = {
        part, {std::as_bytes(std::span(one_row)), DType::kFloat32, 1}};
    ThreadPool pool;
    const PackedMatrix widened = PackedMatrix::Pack(parts, num_cols, pool);
    const std::vector<float> x = RandomInputs(num_cols);
    std::vector<float> expected = Multiply(x, w.packed);
    expected.push_back(0);
    EXPECT_EQ(Multiply(x, widened), expected);
  }
}

// All of them: zeros, denormals, infinities.
TEST_P(MatMulLawsTest, EverySixteenBitNumberIsWidenedExactly) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    constexpr int kNum = 1 << 16;
    std::vector<uint16_t> bits(kNum);
    std::iota(bits.begin(), bits.end(), uint16_t{0});
    const auto bytes = std::as_bytes(std::span(bits));
    const PackedMatrix w = PackAlone({bytes, dtype, kNum}, 1);
    const std::vector<float> y = Multiply(std::vector<float>{1.0f}, w);
    for (int i = 0; i < kNum; ++i) {
      const float expected = LoadAsFloat(&bytes[size_t{2} * i], dtype);
      ASSERT_TRUE(y[i] == expected ||
                  (std::isnan(y[i]) && std::isnan(expected)))
          << "bits " << i << ": " << y[i] << ", not " << expected;
    }
  }
}

}  // namespace
}  // namespace espalier
