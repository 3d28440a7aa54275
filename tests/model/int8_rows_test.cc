#include "model/int8_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/load_as_float.h"

namespace espalier {
namespace {

float WidenedCode(int code, float scale, DType dtype) {
  const auto byte = static_cast<std::byte>(static_cast<int8_t>(code));
  std::byte value[sizeof(float)];
  WidenInt8Row({&byte, 1}, scale, dtype, value);
  return LoadAsFloat(value, dtype);
}

TEST(Int8RowsTest, AWeightIsItsCodeDividedByTheScale) {
  for (int code = -128; code < 128; ++code) {
    for (const float scale : {1.0f, 3.0f, 1234.5f, 0x1p-3f}) {
      EXPECT_EQ(WidenedCode(code, scale, DType::kFloat32),
                static_cast<float>(code) / scale);
    }
  }
}

TEST(Int8RowsTest, SixteenBitsAreTheNearest) {
  for (int code = -128; code < 128; ++code) {
    for (float scale = 0x1p-2f; scale < 0x1p27f; scale *= 1.37f) {
      const float exact = static_cast<float>(code) / scale;
      const float half = WidenedCode(code, scale, DType::kFloat16);
      EXPECT_LE(std::abs(half - exact),
                std::max(std::abs(exact) * 0x1p-11f, 0x1p-25f))
          << code << " " << scale;
      const float bfloat = WidenedCode(code, scale, DType::kBFloat16);
      EXPECT_LE(std::abs(bfloat - exact), std::abs(exact) * 0x1p-8f)
          << code << " " << scale;
    }
  }
}

// 2049 and 2051 lie between two halves each.
TEST(Int8RowsTest, TiesGoToEven) {
  EXPECT_EQ(WidenedCode(1, 1.0f / 2049, DType::kFloat16), 2048);
  EXPECT_EQ(WidenedCode(1, 1.0f / 2051, DType::kFloat16), 2052);
  EXPECT_EQ(WidenedCode(-3, 0x1p25f, DType::kFloat16), -0x1p-23f);
  EXPECT_EQ(WidenedCode(1, 0x1p25f, DType::kFloat16), 0);
  EXPECT_EQ(WidenedCode(1, 1.0f / 257, DType::kBFloat16), 256);
  EXPECT_EQ(WidenedCode(127, 0x1p-10f, DType::kFloat16), INFINITY);
}

}  // namespace
}  // namespace espalier
