#include "kernels/matmul/packed_matrix.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/load_as_float.h"
#include "kernels/matmul/matmul_tile.h"
#include "kernels/matmul/transpose_rows.h"

namespace espalier {
namespace {

static_assert(std::endian::native == std::endian::little,
              "weights are used as they lie in the file");

using Part = PackedMatrix::Part;

// Some rows of a part, as columns of a panel.
struct PanelColumns {
  const Part& part;
  int first_row;  // of the part
  int num_rows;
  int num_cols;  // of the part
  int column;    // of the panel
};

// As they are stored.
template <typename T>
void CopyColumns(const PanelColumns& columns, T* panel) {
  const auto& [part, first_row, num_rows, num_cols, column] = columns;
  const std::byte* from = part.data.data();
  if (!part.is_transposed) {
    const size_t stride = num_cols * sizeof(T);
    TransposeRows(from + first_row * stride, stride, num_rows, num_cols,
                  panel + column, kPanelWidth);
    return;
  }
  for (int k = 0; k < num_cols; ++k) {
    const size_t element = size_t(k) * part.num_rows + first_row;
    std::memcpy(panel + size_t{kPanelWidth} * k + column,
                from + element * sizeof(T), num_rows * sizeof(T));
  }
}

void WidenColumns(const PanelColumns& columns, float* panel) {
  const auto& [part, first_row, num_rows, num_cols, column] = columns;
  for (int r = 0; r < num_rows; ++r) {
    for (int k = 0; k < num_cols; ++k) {
      const size_t row = first_row + r;
      const size_t element = part.is_transposed
                                 ? size_t(k) * part.num_rows + row
                                 : row * num_cols + k;
      panel[size_t{kPanelWidth} * k + column + r] = LoadAsFloat(
          part.data.data() + element * NumBytes(part.dtype), part.dtype);
    }
  }
}

void PackColumns(const PanelColumns& columns, DType dtype, std::byte* panel) {
  if (columns.part.dtype != dtype) {
    WidenColumns(columns, reinterpret_cast<float*>(panel));
  } else if (dtype == DType::kFloat32) {
    CopyColumns(columns, reinterpret_cast<uint32_t*>(panel));
  } else {
    CopyColumns(columns, reinterpret_cast<uint16_t*>(panel));
  }
}

void PackPanel(std::span<const Part> parts, int num_cols, int panel_idx,
               DType dtype, std::byte* panel) {
  const int begin = panel_idx * kPanelWidth;
  const int end = begin + kPanelWidth;
  int part_begin = 0;
  for (const Part& part : parts) {
    const int part_end = part_begin + part.num_rows;
    const int first = std::max(begin, part_begin);
    const int last = std::min(end, part_end);
    if (first < last) {
      PackColumns(
          {part, first - part_begin, last - first, num_cols, first - begin},
          dtype, panel);
    }
    part_begin = part_end;
  }
  const int width = std::min(kPanelWidth, part_begin - begin);
  const size_t element = NumBytes(dtype);
  for (int k = 0; width < kPanelWidth && k < num_cols; ++k) {
    std::memset(panel + (size_t{kPanelWidth} * k + width) * element, 0,
                (kPanelWidth - width) * element);
  }
}

// That of all parts, if it is one.
DType CommonType(std::span<const Part> parts) {
  if (parts.empty()) return DType::kFloat32;
  const DType dtype = parts[0].dtype;
  const bool is_common = std::ranges::all_of(
      parts, [&](const Part& part) { return part.dtype == dtype; });
  return is_common ? dtype : DType::kFloat32;
}

}  // namespace

PackedMatrix PackedMatrix::Pack(std::span<const Part> parts, int num_cols,
                                ThreadPool& pool) {
  CHECK_GE(num_cols, 1);
  PackedMatrix w;
  w.num_cols_ = num_cols;
  w.dtype_ = CommonType(parts);
  for (const Part& part : parts) {
    CHECK_EQ(part.data.size(),
             size_t(part.num_rows) * num_cols * NumBytes(part.dtype));
    w.num_rows_ += part.num_rows;
  }
  const int num_panels = (w.num_rows_ + kPanelWidth - 1) / kPanelWidth;
  const size_t panel_bytes =
      size_t{kPanelWidth} * num_cols * NumBytes(w.dtype_);
  w.panels_ = PanelMemory(num_panels * panel_bytes);
  pool.ParallelFor(num_panels, [&](int i) {
    PackPanel(parts, num_cols, i, w.dtype_, w.panels_.data() + panel_bytes * i);
  });
  return w;
}

}  // namespace espalier
