#include "base/load_as_float.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

namespace espalier {
namespace {

TEST(LoadAsFloatTest, EveryHalfIsWidenedExactly) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value =
        LoadAsFloat(reinterpret_cast<const std::byte*>(&half), DType::kFloat16);
    const int exponent = bits >> 10 & 31;
    const int mantissa = bits & 1023;
    EXPECT_EQ(std::signbit(value), bits >> 15 == 1) << bits;
    if (exponent == 31) {
      EXPECT_EQ(std::isinf(value), mantissa == 0) << bits;
      EXPECT_EQ(std::isnan(value), mantissa != 0) << bits;
    } else {
      const double expected = exponent == 0
                                  ? std::ldexp(mantissa, -24)
                                  : std::ldexp(1024 + mantissa, exponent - 25);
      EXPECT_EQ(std::abs(value), expected) << bits;
    }
  }
}

}  // namespace
}  // namespace espalier
