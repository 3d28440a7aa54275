#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/elementwise/elementwise.h"
#include "kernels/kv_cache/cuda_rotate_and_store.h"
#include "tests/kernels/float_arrays.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::DeviceArray;
using testing::DeviceInts;
using testing::kDTypes;
using testing::kPoison;
using testing::RandomFloats;
using testing::Rounded;
using testing::Unit;

struct RotateCase {
  int num_heads;
  int num_kv_heads;
  int head_dim;
  int page_size;
  bool has_bias = false;
  bool is_rotated = true;
};

// Two layers of seven pages, of which tokens write to a few slots.
void ExpectRotatesAndStores(const RotateCase& c, DType dtype) {
  const int num_tokens = 5;
  const std::vector<int> positions = {0, 7, 8, 9, 20};
  const std::vector<int> token_tables = {1, 0, 0, 0, 1};
  const int stride = 21 / c.page_size + 1;
  std::vector<int> tables(2 * stride);
  std::iota(tables.begin(), tables.end(), 0);
  std::shuffle(tables.begin(), tables.end(), std::mt19937(8));
  const int line = (c.num_heads + 2 * c.num_kv_heads) * c.head_dim;
  const std::vector<float> qkv =
      Rounded(RandomFloats(size_t(num_tokens) * line, 9), dtype);

  CudaKvCache cache = {.dtype = dtype,
                       .num_layers = 2,
                       .num_pages = 2 * stride,
                       .page_size = c.page_size,
                       .num_kv_heads = c.num_kv_heads,
                       .head_dim = c.head_dim};
  const auto pages = DeviceArray::Poisoned(2 * cache.layer_stride(), dtype);
  cache.data = pages.data();
  std::vector<double> frequencies;
  for (int i = 0; i < c.head_dim / 2; ++i) {
    frequencies.push_back(std::pow(100.0, -2.0 * i / c.head_dim));
  }
  const RotaryTable table(frequencies, 21);
  const DeviceArray cosines({table.cosines().begin(), table.cosines().end()},
                            DType::kFloat32);
  const DeviceArray sines({table.sines().begin(), table.sines().end()},
                          DType::kFloat32);
  const DeviceArray qkv_array(qkv, dtype);
  const std::vector<float> bias = RandomFloats(line, 10);
  const DeviceArray bias_array(bias, DType::kFloat32);
  const DeviceBuffer<int> position_buffer = DeviceInts(positions);
  const DeviceBuffer<int> token_table_buffer = DeviceInts(token_tables);
  const DeviceBuffer<int> table_buffer = DeviceInts(tables);
  const CudaTokenSlots slots = {position_buffer.data(),
                                token_table_buffer.data(), table_buffer.data(),
                                stride};
  ASSERT_OK(CudaRotateAndStore(
      qkv_array.data(), num_tokens, c.num_heads,
      c.has_bias ? bias_array.floats() : nullptr,
      c.is_rotated ? CudaRotary{cosines.floats(), sines.floats()}
                   : CudaRotary(),
      slots, cache, /*layer=*/1, nullptr));

  // Rotated on the host; then everything is compared, poison included.
  std::vector<float> rotated = qkv;
  for (int t = 0; t < num_tokens; ++t) {
    if (c.has_bias) {
      AddInPlace(bias, std::span(rotated).subspan(size_t(t) * line, line));
    }
    if (!c.is_rotated) continue;
    const int num_rotated = c.num_heads + c.num_kv_heads;
    table.Rotate(
        std::span(rotated).subspan(size_t(t) * line, num_rotated * c.head_dim),
        num_rotated, positions[t]);
  }
  std::vector<float> expected_qkv = qkv;
  std::vector<float> expected_pages(2 * cache.layer_stride(),
                                    Rounded({kPoison}, dtype)[0]);
  for (int t = 0; t < num_tokens; ++t) {
    const int page =
        tables[token_tables[t] * stride + positions[t] / c.page_size];
    for (int i = 0; i < line; ++i) {
      const float value = rotated[size_t(t) * line + i];
      const int head = i / c.head_dim - c.num_heads;
      if (head < 0) {
        expected_qkv[size_t(t) * line + i] = value;
      } else {
        expected_pages[cache.layer_stride() + page * cache.page_stride() +
                       head * cache.head_stride() +
                       positions[t] % c.page_size * c.head_dim +
                       i % c.head_dim] = value;
      }
    }
  }
  const auto expect_near = [&](const std::vector<float>& got,
                               const std::vector<float>& expected) {
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      // Two products of numbers up to some 200, added, and one rounding.
      ASSERT_NEAR(got[i], expected[i],
                  200 * 0x1p-23 + 1.01 * Unit(dtype) * std::abs(expected[i]))
          << "at " << i << " of head_dim " << c.head_dim;
    }
  };
  expect_near(qkv_array.Read(), expected_qkv);
  expect_near(pages.Read(), expected_pages);
}

TEST(CudaRotateAndStoreTest, MatchesTheHostAndTouchesNothingElse) {
  const RotateCase cases[] = {{1, 1, 8, 1},     {4, 2, 16, 3},
                              {5, 1, 24, 16},   {12, 12, 64, 16},
                              {32, 8, 128, 64}, {2, 1, 256, 16}};
  for (const RotateCase& c : cases) {
    for (const DType dtype : kDTypes) {
      for (RotateCase any = c; const bool has_bias : {false, true}) {
        any.has_bias = has_bias;
        for (const bool is_rotated : {false, true}) {
          any.is_rotated = is_rotated;
          ExpectRotatesAndStores(any, dtype);
        }
      }
    }
  }
}

}  // namespace
}  // namespace espalier
