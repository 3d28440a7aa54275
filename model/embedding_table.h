// EmbeddingTable: rows of numbers by token or position, read where they lie in
// a mapped file: a step needs a few rows, so nothing is packed or copied.
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

  bool empty() const { return rows_.empty(); }

  // Row `row`, widened exactly.
  //   out  [num_cols]
  // REQUIRES: 0 <= row < num_rows.
  void CopyRow(int row, std::span<float> out) const;

 private:
  std::span<const std::byte> rows_;
  DType dtype_ = DType::kFloat32;
  int num_cols_ = 0;
};

}  // namespace espalier
