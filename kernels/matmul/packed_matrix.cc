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

// Columns [begin, end) of a panel's rows.
struct PanelBlock {
  int panel_idx;
  int begin;
  int end;

  int depth() const { return end - begin; }
};

// The rows of a panel that belong to one part.
struct PanelRows {
  const Part& part;
  int first_row;  // within the part
  int num_rows;
  int num_cols;  // inputs of a row
  int lane;      // lane of first_row in the panel

  size_t element(int row, int k) const {
    return part.is_transposed ? size_t(k) * part.num_rows + first_row + row
                              : size_t(first_row + row) * num_cols + k;
  }
};

// Copies the rows without conversion.
template <typename T>
void CopyRows(const PanelRows& rows, PanelBlock block, T* panel) {
  const std::byte* from = rows.part.data.data();
  if (!rows.part.is_transposed) {
    TransposeRows(from + rows.element(0, block.begin) * sizeof(T),
                  rows.num_cols * sizeof(T), rows.num_rows, block.depth(),
                  panel + rows.lane, kPanelWidth);
    return;
  }
  for (int k = 0; k < block.depth(); ++k) {
    std::memcpy(panel + k * kPanelWidth + rows.lane,
                from + rows.element(0, block.begin + k) * sizeof(T),
                rows.num_rows * sizeof(T));
  }
}

// With the type as a template argument, the compiler vectorises the conversion.
template <DType kDType>
void WidenRow(const std::byte* from, int count, float* to) {
  for (int k = 0; k < count; ++k) {
    to[k] = LoadAsFloat(from + k * NumBytes(kDType), kDType);
  }
}

void WidenRow(const std::byte* from, DType dtype, int count, float* to) {
  switch (dtype) {
    case DType::kFloat32:
      return WidenRow<DType::kFloat32>(from, count, to);
    case DType::kBFloat16:
      return WidenRow<DType::kBFloat16>(from, count, to);
    case DType::kFloat16:
      return WidenRow<DType::kFloat16>(from, count, to);
  }
}

// Writes float32, the next row `row_stride` and the next column `stride`
// further.
void WidenRows(const PanelRows& rows, PanelBlock block, float* to,
               size_t row_stride, size_t stride) {
  const DType dtype = rows.part.dtype;
  const auto at = [&](int r, int k) {
    return rows.part.data.data() +
           rows.element(r, block.begin + k) * NumBytes(dtype);
  };
  for (int r = 0; r < rows.num_rows; ++r) {
    float* const row = to + r * row_stride;
    if (stride == 1 && !rows.part.is_transposed) {
      WidenRow(at(r, 0), dtype, block.depth(), row);
      continue;
    }
    for (int k = 0; k < block.depth(); ++k) {
      row[k * stride] = LoadAsFloat(at(r, k), dtype);
    }
  }
}

// Calls visit(PanelRows) for each part that has rows of the panel, and returns
// the number of rows.
template <typename Visit>
int ForRows(std::span<const Part> parts, int num_cols, int panel_idx,
            const Visit& visit) {
  const int begin = panel_idx * kPanelWidth;
  const int end = begin + kPanelWidth;
  int part_begin = 0;
  for (const Part& part : parts) {
    const int part_end = part_begin + part.num_rows;
    const int first = std::max(begin, part_begin);
    const int last = std::min(end, part_end);
    if (first < last) {
      visit(PanelRows{part, first - part_begin, last - first, num_cols,
                      first - begin});
    }
    part_begin = part_end;
  }
  return std::min(end, part_begin) - begin;
}

// Interleaves the halves of each k's outputs: output i, then output i +
// kPanelWidth / 2.
void AlternateHalves(uint16_t* panel, int depth) {
  using Lanes = TransposeLanes<uint16_t>;
  constexpr int kSize = sizeof(Lanes::Vector) / sizeof(uint16_t);
  constexpr int kNumVectors = kPanelWidth / kSize;
  for (uint16_t* row = panel; row < panel + depth * kPanelWidth;
       row += kPanelWidth) {
    Lanes::Vector from[kNumVectors];
    Lanes::Vector to[kNumVectors];
    std::memcpy(from, row, sizeof(from));
    for (int i = 0; i < kNumVectors / 2; ++i) {
      to[2 * i] = Lanes::Lower(from[i], from[i + kNumVectors / 2]);
      to[2 * i + 1] = Lanes::Upper(from[i], from[i + kNumVectors / 2]);
    }
    std::memcpy(row, to, sizeof(to));
  }
}

// Copies a block of bf16 rows that fill a panel, with interleaved halves, in
// one pass. Returns false if they do not, or the columns are too few.
bool CopyAlternating(std::span<const Part> parts, int num_cols,
                     PanelBlock block, uint16_t* panel) {
  bool is_done = false;
  ForRows(parts, num_cols, block.panel_idx, [&](const PanelRows& rows) {
    if (rows.num_rows < kPanelWidth || rows.part.is_transposed ||
        block.depth() != kBlockDepth) {
      return;
    }
    const size_t begin = rows.element(0, block.begin) * sizeof(uint16_t);
    TransposeAlternating(rows.part.data.data() + begin,
                         rows.num_cols * sizeof(uint16_t), kPanelWidth,
                         kBlockDepth, panel, kPanelWidth);
    is_done = true;
  });
  return is_done;
}

void PackPanel(std::span<const Part> parts, int num_cols, PanelBlock block,
               DType dtype, std::byte* panel) {
  if (dtype == DType::kBFloat16 &&
      CopyAlternating(parts, num_cols, block,
                      reinterpret_cast<uint16_t*>(panel))) {
    return;
  }
  const int width =
      ForRows(parts, num_cols, block.panel_idx, [&](const PanelRows& rows) {
        if (rows.part.dtype != dtype) {
          WidenRows(rows, block, reinterpret_cast<float*>(panel) + rows.lane, 1,
                    kPanelWidth);
        } else if (dtype == DType::kFloat32) {
          CopyRows(rows, block, reinterpret_cast<uint32_t*>(panel));
        } else {
          CopyRows(rows, block, reinterpret_cast<uint16_t*>(panel));
        }
      });
  const size_t element = NumBytes(dtype);
  for (int k = 0; width < kPanelWidth && k < block.depth(); ++k) {
    std::memset(panel + (size_t(k) * kPanelWidth + width) * element, 0,
                (kPanelWidth - width) * element);
  }
  if (dtype == DType::kBFloat16) {
    AlternateHalves(reinterpret_cast<uint16_t*>(panel), block.depth());
  }
}

void QuantizePanel(std::span<const Part> parts, int num_cols, PanelBlock block,
                   WeightFormat format, std::byte* panel) {
  const int group_size = QuantGroupSize(format);
  float weights[kPanelWidth * kMaxQuantGroupSize];
  for (int begin = block.begin; begin < block.end; begin += group_size) {
    const PanelBlock group = {block.panel_idx, begin,
                              std::min(begin + group_size, block.end)};
    const int width =
        ForRows(parts, num_cols, block.panel_idx, [&](const PanelRows& rows) {
          WidenRows(rows, group, weights + rows.lane * group_size, group_size,
                    1);
        });
    QuantizeGroup(weights, width, group.depth(), group_size, format, panel);
    panel += QuantGroupBytes(format, group.depth());
  }
}

// Returns the type of all parts, if they share one.
DType CommonType(std::span<const Part> parts) {
  if (parts.empty()) return DType::kFloat32;
  const DType dtype = parts[0].dtype;
  const bool is_common = std::ranges::all_of(
      parts, [&](const Part& part) { return part.dtype == dtype; });
  return is_common ? dtype : DType::kFloat32;
}

}  // namespace

PackedMatrix PackedMatrix::Pack(std::span<const Part> parts, int num_cols,
                                ThreadPool& pool, WeightFormat format,
                                PanelArena* arena) {
  CHECK_GE(num_cols, 1);
  CHECK(format != WeightFormat::kFp8);
  PackedMatrix w;
  w.num_cols_ = num_cols;
  w.format_ = format;
  w.dtype_ = CommonType(parts);
  for (const Part& part : parts) {
    CHECK_EQ(part.data.size(),
             size_t(part.num_rows) * num_cols * NumBytes(part.dtype));
    w.num_rows_ += part.num_rows;
  }
  w.panels_ = arena != nullptr ? arena->Allocate(w.num_bytes())
                               : PanelMemory(w.num_bytes());
  pool.ParallelFor(w.num_panels(), [&](int i) {
    for (int begin = 0; begin < num_cols; begin += kBlockDepth) {
      const PanelBlock block = {i, begin,
                                std::min(begin + kBlockDepth, num_cols)};
      std::byte* const panel = w.panels_.data() + w.PanelOffset(begin, i);
      if (format == WeightFormat::kAsStored) {
        PackPanel(parts, num_cols, block, w.dtype_, panel);
      } else {
        QuantizePanel(parts, num_cols, block, format, panel);
      }
    }
  });
  return w;
}

int PackedMatrix::num_panels() const {
  return (num_rows_ + kPanelWidth - 1) / kPanelWidth;
}

size_t PackedMatrix::panel_bytes(int k) const {
  return BytesBefore(std::min(k + kBlockDepth, num_cols_)) - BytesBefore(k);
}

size_t PackedMatrix::PanelOffset(int k, int panel) const {
  return num_panels() * BytesBefore(k) + panel * panel_bytes(k);
}

size_t PackedMatrix::BytesBefore(int k) const {
  return format_ == WeightFormat::kAsStored
             ? size_t{kPanelWidth} * k * NumBytes(dtype_)
             : QuantBytesBefore(format_, k);
}

}  // namespace espalier
