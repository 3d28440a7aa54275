#include "kernels/matmul/packed_matrix.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/load_as_float.h"
#include "kernels/matmul/matmul_tile.h"
#include "kernels/matmul/quantized_panel.h"
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

// Numbers [begin, end) of each row as float32, the next row's `row_stride` and
// the next number `stride` further.
void Widen(const PanelColumns& columns, int begin, int end, float* to,
           size_t row_stride, size_t stride) {
  const Part& part = columns.part;
  for (int r = 0; r < columns.num_rows; ++r) {
    for (int k = begin; k < end; ++k) {
      const size_t row = columns.first_row + r;
      const size_t element = part.is_transposed
                                 ? size_t(k) * part.num_rows + row
                                 : row * columns.num_cols + k;
      to[r * row_stride + (k - begin) * stride] = LoadAsFloat(
          part.data.data() + element * NumBytes(part.dtype), part.dtype);
    }
  }
}

void PackColumns(const PanelColumns& columns, DType dtype, std::byte* panel) {
  if (columns.part.dtype != dtype) {
    Widen(columns, 0, columns.num_cols,
          reinterpret_cast<float*>(panel) + columns.column, 1, kPanelWidth);
  } else if (dtype == DType::kFloat32) {
    CopyColumns(columns, reinterpret_cast<uint32_t*>(panel));
  } else {
    CopyColumns(columns, reinterpret_cast<uint16_t*>(panel));
  }
}

// Calls visit(PanelColumns) for each part that has columns of the panel, and
// returns how many there are.
template <typename Visit>
int ForColumns(std::span<const Part> parts, int num_cols, int panel_idx,
               const Visit& visit) {
  const int begin = panel_idx * kPanelWidth;
  const int end = begin + kPanelWidth;
  int part_begin = 0;
  for (const Part& part : parts) {
    const int part_end = part_begin + part.num_rows;
    const int first = std::max(begin, part_begin);
    const int last = std::min(end, part_end);
    if (first < last) {
      visit(PanelColumns{part, first - part_begin, last - first, num_cols,
                         first - begin});
    }
    part_begin = part_end;
  }
  return std::min(end, part_begin) - begin;
}

void PackPanel(std::span<const Part> parts, int num_cols, int panel_idx,
               DType dtype, std::byte* panel) {
  const int width = ForColumns(
      parts, num_cols, panel_idx,
      [&](const PanelColumns& columns) { PackColumns(columns, dtype, panel); });
  const size_t element = NumBytes(dtype);
  for (int k = 0; width < kPanelWidth && k < num_cols; ++k) {
    std::memset(panel + (size_t{kPanelWidth} * k + width) * element, 0,
                (kPanelWidth - width) * element);
  }
}

void QuantizePanel(std::span<const Part> parts, int num_cols, int panel_idx,
                   WeightFormat format, std::byte* panel) {
  const int group = QuantGroupSize(format);
  float weights[kPanelWidth * kMaxQuantGroupSize];
  for (int begin = 0; begin < num_cols; begin += group) {
    const int end = std::min(begin + group, num_cols);
    const int width = ForColumns(
        parts, num_cols, panel_idx, [&](const PanelColumns& columns) {
          Widen(columns, begin, end, weights + columns.column * group, group,
                1);
        });
    QuantizeGroup(weights, width, end - begin, group, format, panel);
    panel += QuantGroupBytes(format, end - begin);
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
                                ThreadPool& pool, WeightFormat format) {
  CHECK_GE(num_cols, 1);
  PackedMatrix w;
  w.num_cols_ = num_cols;
  w.format_ = format;
  w.dtype_ = CommonType(parts);
  for (const Part& part : parts) {
    CHECK_EQ(part.data.size(),
             size_t(part.num_rows) * num_cols * NumBytes(part.dtype));
    w.num_rows_ += part.num_rows;
  }
  const int num_panels = (w.num_rows_ + kPanelWidth - 1) / kPanelWidth;
  w.num_bytes_ = num_panels * w.panel_bytes();
  w.panels_ = PanelMemory(w.num_bytes_);
  pool.ParallelFor(num_panels, [&](int i) {
    std::byte* const panel = w.panels_.data() + w.panel_bytes() * i;
    if (format == WeightFormat::kAsStored) {
      PackPanel(parts, num_cols, i, w.dtype_, panel);
    } else {
      QuantizePanel(parts, num_cols, i, format, panel);
    }
  });
  return w;
}

size_t PackedMatrix::bytes_before(int k) const {
  return format_ == WeightFormat::kAsStored
             ? size_t{kPanelWidth} * k * NumBytes(dtype_)
             : QuantPanelBytes(format_, k);
}

}  // namespace espalier
