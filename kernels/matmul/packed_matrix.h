// PackedMatrix: a weight matrix w in the order in which MatMul (matmul.h) reads
// it. Weights are packed once at load, as they come: bf16 stays bf16 and f16
// stays f16. Several matrices that are multiplied by the same input are packed
// as one.
//
//   const PackedMatrix::Part parts[] = {{q_bytes, DType::kBFloat16, q_size},
//                                       {k_bytes, DType::kBFloat16, kv_size}};
//   const PackedMatrix qk = PackedMatrix::Pack(parts, hidden_size, pool);
//
// Thread safety: immutable after Pack.
#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.h"
#include "base/thread_pool.h"
#include "kernels/panel_memory.h"

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
    bool is_transposed = false;  // data is [num_cols, num_rows]
  };
  // Packed in the type of the parts if that is one, else as f32, which is
  // exact; by the threads of `pool`, which read each byte once. Throws
  // std::bad_alloc.
  // REQUIRES: num_cols >= 1; every part has num_rows * num_cols elements.
  static PackedMatrix Pack(std::span<const Part> parts, int num_cols,
                           ThreadPool& pool);

  int num_rows() const { return num_rows_; }  // outputs
  int num_cols() const { return num_cols_; }  // inputs

  // What MatMul reads: panels of kPanelWidth rows (matmul_tile.h), k-major
  // inside a panel, zero padded; of dtype().
  const std::byte* panels() const { return panels_.data(); }
  DType dtype() const { return dtype_; }

 private:
  int num_rows_ = 0;
  int num_cols_ = 0;
  DType dtype_ = DType::kFloat32;
  PanelMemory panels_;
};

}  // namespace espalier
