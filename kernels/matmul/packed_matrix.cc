#include "kernels/matmul/packed_matrix.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "kernels/matmul/matmul_tile.h"

namespace espalier {
namespace {

static_assert(std::endian::native == std::endian::little,
              "weights are used as they lie in the file");

float HalfToFloat(uint16_t half) {
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

float BFloat16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

template <typename T>
T Load(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

// Where element (row, k) lies in the panels, in elements.
size_t PanelOffset(int row, int k, int num_cols) {
  const size_t panel = row / kPanelWidth;
  return (panel * num_cols + k) * kPanelWidth + row % kPanelWidth;
}

// Writes `part` as rows [first_row, first_row + part.num_rows).
void PackPart(const PackedMatrix::Part& part, int first_row, int num_cols,
              DType packed_dtype, std::byte* panels) {
  const size_t from_bytes = NumBytes(part.dtype);
  const size_t to_bytes = NumBytes(packed_dtype);
  for (int row = 0; row < part.num_rows; ++row) {
    const std::byte* from =
        part.data.data() + size_t(row) * num_cols * from_bytes;
    std::byte* to =
        panels + PanelOffset(first_row + row, 0, num_cols) * to_bytes;
    for (int k = 0; k < num_cols; ++k) {
      if (packed_dtype == DType::kBFloat16) {
        std::memcpy(to, from, to_bytes);
      } else {
        const float value = LoadAsFloat(from, part.dtype);
        std::memcpy(to, &value, to_bytes);
      }
      from += from_bytes;
      to += to_bytes * kPanelWidth;
    }
  }
}

}  // namespace

float LoadAsFloat(const std::byte* data, DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return Load<float>(data);
    case DType::kBFloat16:
      return BFloat16ToFloat(Load<uint16_t>(data));
    case DType::kFloat16:
      return HalfToFloat(Load<uint16_t>(data));
  }
  CHECK(false) << "dtype " << static_cast<int>(dtype);
  return 0.0f;
}

PackedMatrix PackedMatrix::Pack(std::span<const Part> parts, int num_cols) {
  CHECK_GE(num_cols, 1);
  PackedMatrix w;
  w.num_cols_ = num_cols;
  w.dtype_ = DType::kBFloat16;
  for (const Part& part : parts) {
    CHECK_EQ(part.data.size(),
             size_t(part.num_rows) * num_cols * NumBytes(part.dtype));
    w.num_rows_ += part.num_rows;
    if (part.dtype != DType::kBFloat16) w.dtype_ = DType::kFloat32;
  }
  const size_t num_panels = (w.num_rows_ + kPanelWidth - 1) / kPanelWidth;
  w.panels_.resize(num_panels * kPanelWidth * num_cols * NumBytes(w.dtype_));
  int row = 0;
  for (const Part& part : parts) {
    PackPart(part, row, num_cols, w.dtype_, w.panels_.data());
    row += part.num_rows;
  }
  return w;
}

void PackedMatrix::CopyRow(int row, std::span<float> out) const {
  CHECK(row >= 0 && row < num_rows_) << row << " of " << num_rows_;
  CHECK_EQ(out.size(), static_cast<size_t>(num_cols_));
  const size_t stride = size_t{kPanelWidth} * NumBytes(dtype_);
  const std::byte* from =
      panels_.data() + PanelOffset(row, 0, num_cols_) * NumBytes(dtype_);
  for (int k = 0; k < num_cols_; ++k) {
    out[k] = LoadAsFloat(from + k * stride, dtype_);
  }
}

}  // namespace espalier
