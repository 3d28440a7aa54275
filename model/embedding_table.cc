#include "model/embedding_table.h"

#include "base/check.h"
#include "base/load_as_float.h"
#include "model/int8_rows.h"

namespace espalier {

EmbeddingTable::EmbeddingTable(std::span<const std::byte> rows, DType dtype,
                               int num_cols)
    : rows_(rows), dtype_(dtype), num_cols_(num_cols) {}

EmbeddingTable::EmbeddingTable(std::span<const std::byte> rows,
                               std::span<const std::byte> scales, DType dtype,
                               int num_cols)
    : rows_(rows), scales_(scales), dtype_(dtype), num_cols_(num_cols) {}

void EmbeddingTable::CopyRow(int row, std::span<float> out) const {
  const size_t element_bytes = scales_.empty() ? NumBytes(dtype_) : 1;
  const size_t row_bytes = num_cols_ * element_bytes;
  CHECK(row >= 0 && (row + size_t{1}) * row_bytes <= rows_.size()) << row;
  CHECK_EQ(out.size(), static_cast<size_t>(num_cols_));
  const std::byte* from = &rows_[row * row_bytes];
  if (!scales_.empty()) {
    const float scale =
        LoadAsFloat(&scales_[row * sizeof(float)], DType::kFloat32);
    for (int k = 0; k < num_cols_; ++k) {
      std::byte value[sizeof(float)];
      WidenInt8Row({from + k, 1}, scale, dtype_, value);
      out[k] = LoadAsFloat(value, dtype_);
    }
    return;
  }
  for (int k = 0; k < num_cols_; ++k) {
    out[k] = LoadAsFloat(from + k * element_bytes, dtype_);
  }
}

}  // namespace espalier
