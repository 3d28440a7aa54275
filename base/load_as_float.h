// LoadAsFloat: a stored number of any type as float32, which is exact.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "base/dtype.h"

namespace espalier {

inline float HalfToFloat(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7FFFu;
  if (magnitude >= 0x7C00u) {  // infinity, NaN
    return std::bit_cast<float>(sign | 0x7F800000u | (magnitude << 13));
  }
  // After the shift the exponent is 112 too small; scaling by 2^112 is exact
  // and turns denormals into normal numbers.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(scaled));
}

inline float BFloat16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

template <typename T>
T LoadUnaligned(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

// Little-endian, any alignment.
inline float LoadAsFloat(const std::byte* data, DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return LoadUnaligned<float>(data);
    case DType::kBFloat16:
      return BFloat16ToFloat(LoadUnaligned<uint16_t>(data));
    case DType::kFloat16:
      return HalfToFloat(LoadUnaligned<uint16_t>(data));
  }
  CHECK(false) << "dtype " << static_cast<int>(dtype);
  return 0.0f;
}

}  // namespace espalier
