#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/elementwise/elementwise.h"
#include "kernels/matmul/cuda_activate.h"
#include "tests/kernels/float_arrays.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::DeviceArray;
using ::espalier::testing::kDTypes;
using ::espalier::testing::kPoison;
using ::espalier::testing::RandomFloats;
using ::espalier::testing::Rounded;
using ::espalier::testing::StatusIs;
using ::espalier::testing::Unit;
using ::testing::HasSubstr;

constexpr CudaActivationKind kActivations[] = {
    CudaActivationKind::kSilu, CudaActivationKind::kGeluTanh,
    CudaActivationKind::kGelu, CudaActivationKind::kRelu};

double Activated(double x, CudaActivationKind kind) {
  switch (kind) {
    case CudaActivationKind::kSilu:
      return x / (1 + std::exp(-x));
    case CudaActivationKind::kGeluTanh:
      return reference::Gelu(x);
    case CudaActivationKind::kGelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case CudaActivationKind::kRelu:
      return std::max(x, 0.0);
  }
  return x;
}

struct ActivateCase {
  CudaActivationKind kind;
  bool has_gate;
  bool has_bias;
};

// A number of a row of sums: the gate's or, after it, the up's.
struct SumAt {
  size_t gate;
  size_t up;
};
SumAt PlaceOf(const ActivateCase& c, int output) {
  const size_t gate = c.has_gate ? output / 8 * 16 + output % 8 : output;
  return {gate, gate + 8};
}

void ExpectActivates(const ActivateCase& c, int num_rows, int num_outputs,
                     DType dtype) {
  const int num_sums = c.has_gate ? 2 * num_outputs : num_outputs;
  std::vector<float> sums = RandomFloats(size_t(num_rows) * num_sums, 1);
  for (size_t i = 0; i < sums.size(); ++i) sums[i] *= i % 5 == 0 ? 1 : 0.25f;
  sums = Rounded(sums, dtype);
  // Products stay within float16.
  std::vector<float> bias = RandomFloats(num_sums, 2);
  for (float& value : bias) value *= 0.25f;
  const DeviceArray sum_array(sums, dtype);
  const DeviceArray bias_array(bias, DType::kFloat32);
  const size_t size = size_t(num_rows) * num_outputs;
  const auto out = DeviceArray::Poisoned(size + 8, dtype);
  const CudaActivation activation = {
      .has_gate = c.has_gate,
      .kind = c.kind,
      .bias = c.has_bias ? bias_array.floats() : nullptr};
  ASSERT_OK(CudaActivate(sum_array.data(), dtype, num_rows, num_sums,
                         activation, out.data(), nullptr));
  const std::vector<float> got = out.Read();
  for (size_t i = 0; i < size; ++i) {
    const size_t row = i / num_outputs * num_sums;
    const SumAt at = PlaceOf(c, static_cast<int>(i % num_outputs));
    const auto sum = [&](size_t place) {
      // Added in float32.
      return double{sums[row + place] + (c.has_bias ? bias[place] : 0)};
    };
    const double gate = sum(at.gate);
    const double up = c.has_gate ? sum(at.up) : 1;
    const double expected = Activated(gate, c.kind) * up;
    // If 1 + tanh, or 1 + erf, is nearly 0, its rounding matters.
    const double tolerance =
        std::abs(expected) * (0x1p-20 + 1.01 * Unit(dtype)) +
        std::abs(gate * up) * 0x1p-23 +
        (dtype == DType::kFloat16 ? 0x1p-25 : 0);
    ASSERT_NEAR(got[i], expected, tolerance) << gate << " " << up;
  }
  for (size_t i = size; i < got.size(); ++i) {
    ASSERT_EQ(got[i], Rounded({kPoison}, dtype)[0]);
  }
}

TEST(CudaActivateTest, MatchesTheTwinOfEachForm) {
  for (const DType dtype : kDTypes) {
    for (const auto& [num_rows, num_outputs] :
         {std::pair(1, 8), std::pair(3, 40), std::pair(5, 2048),
          std::pair(37, 1000)}) {
      for (const CudaActivationKind kind : kActivations) {
        for (int form = 0; form < 4; ++form) {
          ExpectActivates({kind, (form & 1) != 0, (form & 2) != 0}, num_rows,
                          num_outputs, dtype);
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(CudaActivateTest, NonFiniteNumbersAreThoseOfTheFormulas) {
  const std::vector<float> sums = {NAN,  INFINITY, -INFINITY, 1e30f,
                                   -200, 0,        -0.0f,     1};
  const DeviceArray array(sums, DType::kFloat32);
  for (const CudaActivationKind kind : kActivations) {
    const auto out = DeviceArray::Poisoned(8, DType::kFloat32);
    ASSERT_OK(CudaActivate(array.data(), DType::kFloat32, 1, 8,
                           {.has_gate = false, .kind = kind}, out.data(),
                           nullptr));
    const std::vector<float> got = out.Read();
    EXPECT_TRUE(std::isnan(got[0]));
    EXPECT_EQ(got[1], INFINITY);
    // All but the ReLU multiply it by 0.
    EXPECT_EQ(std::isnan(got[2]), kind != CudaActivationKind::kRelu);
    EXPECT_EQ(got[3], 1e30f);
    for (const int i : {4, 5, 6}) EXPECT_EQ(got[i], 0.0f) << i;
  }
}

TEST(CudaActivateTest, RowsThatDoNotFitAreNamed) {
  EXPECT_THAT(
      CudaActivate(nullptr, DType::kFloat32, 1, 24, {}, nullptr, nullptr),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("24 rows, not a multiple of 16")));
  EXPECT_THAT(CudaActivate(nullptr, DType::kFloat32, 1, 12, {.has_gate = false},
                           nullptr, nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("12 rows, not a multiple of 8")));
}

}  // namespace
}  // namespace espalier
