// EmbeddingTable: embeddings by token or position, read directly from a mapped
// file. A step reads few rows, so the table is neither packed nor copied.
//
// Thread safety: immutable after construction.
#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.h"

namespace espalier {

class EmbeddingTable {
 public:
  EmbeddingTable() = default;
  //   rows  [num_rows, num_cols]  row-major, little-endian, any alignment;
  //         outlives the table
  EmbeddingTable(std::span<const std::byte> rows, DType dtype, int num_cols);
  // A table of int8 codes (model/int8_rows.h), which dequantise to `dtype`.
  //   scales  [num_rows]  float32, any alignment; outlives the table
  EmbeddingTable(std::span<const std::byte> rows,
                 std::span<const std::byte> scales, DType dtype, int num_cols);

  bool empty() const { return rows_.empty(); }

  // Copies row `row`, widened exactly to float32.
  //   out  [num_cols]
  // REQUIRES: 0 <= row < num_rows.
  void CopyRow(int row, std::span<float> out) const;

 private:
  std::span<const std::byte> rows_;
  std::span<const std::byte> scales_;  // empty: rows are of dtype_
  DType dtype_ = DType::kFloat32;
  int num_cols_ = 0;
};

}  // namespace espalier
