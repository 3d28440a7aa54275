#include "model/embedding_table.h"

#include "base/check.h"
#include "base/load_as_float.h"

namespace espalier {

EmbeddingTable::EmbeddingTable(std::span<const std::byte> rows, DType dtype,
                               int num_cols)
    : rows_(rows), dtype_(dtype), num_cols_(num_cols) {}

void EmbeddingTable::CopyRow(int row, std::span<float> out) const {
  const size_t element_bytes = NumBytes(dtype_);
  const size_t row_bytes = num_cols_ * element_bytes;
  CHECK(row >= 0 && (row + size_t{1}) * row_bytes <= rows_.size()) << row;
  CHECK_EQ(out.size(), static_cast<size_t>(num_cols_));
  const std::byte* from = &rows_[row * row_bytes];
  for (int k = 0; k < num_cols_; ++k) {
    out[k] = LoadAsFloat(from + k * element_bytes, dtype_);
  }
}

}  // namespace espalier
