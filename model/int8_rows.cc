#include "model/int8_rows.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/load_as_float.h"

namespace espalier {
namespace {

// Rounded to nearest even, for numbers and infinities.
uint16_t HalfBits(float value) {
  const uint32_t sign = std::bit_cast<uint32_t>(value) >> 16 & 0x8000u;
  const float magnitude = std::abs(value);
  if (!(magnitude < 65520.0f)) return static_cast<uint16_t>(sign | 0x7C00u);
  uint32_t bits = std::bit_cast<uint32_t>(magnitude);
  if (magnitude < 0x1p-14f) {
    // The last bit of 0.5 is that of a half's denormals.
    bits = std::bit_cast<uint32_t>(magnitude + 0.5f) -
           std::bit_cast<uint32_t>(0.5f);
    return static_cast<uint16_t>(sign | bits);
  }
  bits += 0xFFFu + (bits >> 13 & 1u);
  return static_cast<uint16_t>(sign | (bits - (112u << 23)) >> 13);
}

uint16_t BFloat16Bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

}  // namespace

void WidenInt8Row(std::span<const std::byte> codes, float scale, DType dtype,
                  std::byte* to) {
  for (const std::byte code : codes) {
    const float value =
        static_cast<float>(std::to_integer<int8_t>(code)) / scale;
    if (dtype == DType::kFloat32) {
      std::memcpy(to, &value, sizeof(value));
    } else {
      const uint16_t bits =
          dtype == DType::kFloat16 ? HalfBits(value) : BFloat16Bits(value);
      std::memcpy(to, &bits, sizeof(bits));
    }
    to += NumBytes(dtype);
  }
}

std::vector<std::byte> WidenInt8(const TransformerTensor& tensor,
                                 ThreadPool& pool) {
  const size_t num_cols = tensor.num_cols();
  const size_t row_bytes = num_cols * NumBytes(tensor.dtype);
  std::vector<std::byte> widened(tensor.num_rows * row_bytes);
  pool.ParallelFor(tensor.num_rows, [&](int row) {
    WidenInt8Row(
        tensor.data.subspan(row * num_cols, num_cols),
        LoadAsFloat(&tensor.int8_scales[row * sizeof(float)], DType::kFloat32),
        tensor.dtype, &widened[row * row_bytes]);
  });
  return widened;
}

}  // namespace espalier
