#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <vector>

#include "kernels/elementwise/cuda_finish_heads.h"
#include "kernels/elementwise/elementwise.h"
#include "tests/kernels/float_arrays.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::DeviceArray;
using ::testing::HasSubstr;
using testing::kDTypes;
using testing::RandomFloats;
using testing::Rounded;
using testing::StatusIs;
using testing::Unit;

struct FinishCase {
  CudaHeadShape shape;
  bool has_bias;
  bool has_norms;
};

// Returns the twin's numbers for the device's input.
std::vector<double> FinishedOnTheHost(const std::vector<float>& qkv,
                                      const std::vector<float>& bias,
                                      const std::vector<float>& q_norm,
                                      const std::vector<float>& k_norm,
                                      const FinishCase& c) {
  const int dim = c.shape.head_dim;
  const int num_all = c.shape.num_heads + 2 * c.shape.num_kv_heads;
  std::vector<double> finished;
  for (size_t at = 0; at < qkv.size(); at += dim) {
    const int head = static_cast<int>(at / dim) % num_all;
    std::vector<float> x(qkv.begin() + at, qkv.begin() + at + dim);
    if (c.has_bias) AddInPlace(std::span(bias).subspan(head * dim, dim), x);
    std::vector<double> out(x.begin(), x.end());
    if (c.has_norms && head < c.shape.num_heads + c.shape.num_kv_heads) {
      out = reference::RmsNorm(x, head < c.shape.num_heads ? q_norm : k_norm,
                               1e-5);
    }
    finished.insert(finished.end(), out.begin(), out.end());
  }
  return finished;
}

void ExpectFinishes(const FinishCase& c, DType dtype) {
  const int num_tokens = 5;
  const int dim = c.shape.head_dim;
  const int line = (c.shape.num_heads + 2 * c.shape.num_kv_heads) * dim;
  const std::vector<float> qkv =
      Rounded(RandomFloats(size_t(num_tokens) * line, 9), dtype);
  const std::vector<float> bias = RandomFloats(line, 10);
  const std::vector<float> q_norm = RandomFloats(dim, 11);
  const std::vector<float> k_norm = RandomFloats(dim, 12);
  const DeviceArray array(qkv, dtype);
  const DeviceArray bias_array(bias, DType::kFloat32);
  const DeviceArray q_array(q_norm, DType::kFloat32);
  const DeviceArray k_array(k_norm, DType::kFloat32);
  CudaHeadWeights weights = {.epsilon = 1e-5f};
  if (c.has_bias) weights.bias = bias_array.floats();
  if (c.has_norms) weights.q_norm = q_array.floats();
  if (c.has_norms) weights.k_norm = k_array.floats();
  ASSERT_OK(CudaFinishHeads(array.data(), dtype, num_tokens, c.shape, weights,
                            nullptr));
  const std::vector<double> expected =
      FinishedOnTheHost(qkv, bias, q_norm, k_norm, c);
  const std::vector<float> got = array.Read();
  for (size_t i = 0; i < got.size(); ++i) {
    // Sums of squares are added in another order; below its normal numbers
    // float16 rounds to multiples of 2^-24.
    ASSERT_NEAR(got[i], expected[i],
                std::abs(expected[i]) *
                        (0x1p-24 * (dim / 8.0 + 16) + 1.01 * Unit(dtype)) +
                    (dtype == DType::kFloat16 ? 0x1p-25 : 0))
        << "at " << i << " of head_dim " << dim;
  }
}

TEST(CudaFinishHeadsTest, MatchesTheTwinAtAnyShapeAndDType) {
  const CudaHeadShape shapes[] = {{1, 1, 8},   {4, 2, 16},   {5, 1, 24},
                                  {12, 4, 64}, {14, 2, 128}, {3, 3, 136},
                                  {8, 4, 256}};
  for (const CudaHeadShape& shape : shapes) {
    for (const DType dtype : kDTypes) {
      ExpectFinishes({shape, true, false}, dtype);
      ExpectFinishes({shape, false, true}, dtype);
      ExpectFinishes({shape, true, true}, dtype);
      ExpectFinishes({shape, false, false}, dtype);
    }
  }
}

// Heads of 12 in places of 16, as two halves of six and two zeros.
TEST(CudaFinishHeadsTest, AMeanIsOfTheNumbersThatAHeadHas) {
  const CudaHeadShape shape = {3, 1, 16, 12};
  const std::vector<float> narrow = RandomFloats(2 * 5 * 12, 13);
  const std::vector<float> norm = RandomFloats(12, 14);
  const auto padded = [](const std::vector<float>& heads) {
    std::vector<float> wide;
    for (size_t i = 0; i < heads.size(); ++i) {
      wide.push_back(heads[i]);
      if (i % 6 == 5) wide.insert(wide.end(), 2, 0.0f);
    }
    return wide;
  };
  const DeviceArray array(padded(narrow), DType::kFloat32);
  const DeviceArray norm_array(padded(norm), DType::kFloat32);
  ASSERT_OK(CudaFinishHeads(array.data(), DType::kFloat32, 2, shape,
                            {.q_norm = norm_array.floats(),
                             .k_norm = norm_array.floats(),
                             .epsilon = 1e-5f},
                            nullptr));
  std::vector<float> expected;
  for (size_t head = 0; head < 10; ++head) {
    const std::vector<float> x(narrow.begin() + head * 12,
                               narrow.begin() + (head + 1) * 12);
    const auto normed = reference::RmsNorm(x, norm, 1e-5);
    for (int i = 0; i < 12; ++i) {
      expected.push_back(head % 5 == 4 ? x[i] : static_cast<float>(normed[i]));
    }
  }
  const std::vector<float> wide = padded(expected);
  const std::vector<float> got = array.Read();
  for (size_t i = 0; i < wide.size(); ++i) {
    ASSERT_NEAR(got[i], wide[i], std::abs(wide[i]) * 0x1p-20) << i;
  }
}

TEST(CudaFinishHeadsTest, ANanStaysInItsHead) {
  std::vector<float> qkv = RandomFloats(3 * 4 * 16, 5);
  qkv[4 * 16 + 16 + 3] = NAN;  // token 1, head 1 of two, one of k, one of v
  const DeviceArray array(qkv, DType::kFloat32);
  const DeviceArray norm(std::vector<float>(16, 1.0f), DType::kFloat32);
  const CudaHeadWeights weights = {.q_norm = norm.floats(),
                                   .k_norm = norm.floats()};
  ASSERT_OK(CudaFinishHeads(array.data(), DType::kFloat32, 3, {2, 1, 16},
                            weights, nullptr));
  const std::vector<float> got = array.Read();
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(std::isnan(got[i]), i / 16 == 5) << i;
  }
}

TEST(CudaFinishHeadsTest, HeadsThatItDoesNotTakeAreNamed) {
  for (const int head_dim : {4, 12, 264}) {
    EXPECT_THAT(CudaFinishHeads(nullptr, DType::kFloat32, 1, {1, 1, head_dim},
                                {}, nullptr),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("is not a multiple of 8 up to 256")));
  }
}

}  // namespace
}  // namespace espalier
