// PackedMatrix: a weight matrix w in the order in which MatMul (matmul.h) reads
// it. Weights are packed once at load, as they come: bf16 stays bf16, f16 is
// widened to f32, which is exact. Several matrices that are multiplied by the
// same input are packed as one.
//
//   const PackedMatrix::Part parts[] = {{q_bytes, DType::kBFloat16, q_size},
//                                       {k_bytes, DType::kBFloat16, kv_size}};
//   const PackedMatrix qk = PackedMatrix::Pack(parts, hidden_size);
//
// Thread safety: immutable after Pack.
#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.h"
#include "kernels/aligned_vector.h"

namespace espalier {

// Immutable, movable.
class PackedMatrix {
 public:
  PackedMatrix() = default;
  PackedMatrix(PackedMatrix&&) = default;
  PackedMatrix& operator=(PackedMatrix&&) = default;
  PackedMatrix(const PackedMatrix&) = delete;
  PackedMatrix& operator=(const PackedMatrix&) = delete;

  // One matrix of several stacked on top of each other (q, k, v), each
  //   data  [num_rows, num_cols]  row-major, little-endian, any alignment
  struct Part {
    std::span<const std::byte> data;
    DType dtype = DType::kFloat32;
    int num_rows = 0;
  };
  // Packed as bf16 if all parts are bf16, else as f32. Throws std::bad_alloc.
  // REQUIRES: num_cols >= 1; every part has num_rows * num_cols elements.
  static PackedMatrix Pack(std::span<const Part> parts, int num_cols);

  int num_rows() const { return num_rows_; }  // outputs
  int num_cols() const { return num_cols_; }  // inputs

  // Row `row` of w, widened exactly: an embedding table is a PackedMatrix too,
  // so that tied embeddings are in memory once.
  //   out  [num_cols]
  // REQUIRES: 0 <= row < num_rows().
  void CopyRow(int row, std::span<float> out) const;

  // What MatMul reads: panels of kPanelWidth rows (matmul_tile.h), k-major
  // inside a panel, zero padded; f32 or bf16.
  const std::byte* panels() const { return panels_.data(); }
  DType dtype() const { return dtype_; }

 private:
  int num_rows_ = 0;
  int num_cols_ = 0;
  DType dtype_ = DType::kFloat32;
  AlignedVector<std::byte> panels_;
};

}  // namespace espalier
