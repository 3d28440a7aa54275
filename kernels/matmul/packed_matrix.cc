#include "kernels/matmul/packed_matrix.h"

#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/load_as_float.h"
#include "kernels/matmul/matmul_tile.h"

namespace espalier {
namespace {

static_assert(std::endian::native == std::endian::little,
              "weights are used as they lie in the file");

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
