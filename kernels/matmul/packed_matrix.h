// PackedMatrix: a copy of a weight matrix w in the order in which MatMul
// (matmul.h) reads it. Weights are packed once at load, in the type in which
// they are stored or quantised. Several matrices that are multiplied by the
// same input are packed as one.
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
#include "kernels/matmul/weight_format.h"
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

  // One of the matrices (q, k, v) whose rows follow each other in w. Only Pack
  // reads `data`.
  //   data  [num_rows, num_cols]  row-major, little-endian, any alignment
  struct Part {
    std::span<const std::byte> data;
    DType dtype = DType::kFloat32;
    int num_rows = 0;
    bool is_transposed = false;  // data is [num_cols, num_rows]
  };
  // Packs the parts in `format` (weight_format.h). kAsStored keeps the type of
  // the parts if they share one, and otherwise widens all to f32, which is
  // exact. Uses the threads of `pool`, and memory of `arena` unless it is null.
  // Throws std::bad_alloc.
  // REQUIRES: num_cols >= 1; every part has num_rows * num_cols elements;
  // `format` is not kFp8.
  static PackedMatrix Pack(std::span<const Part> parts, int num_cols,
                           ThreadPool& pool,
                           WeightFormat format = WeightFormat::kAsStored,
                           PanelArena* arena = nullptr);

  int num_rows() const { return num_rows_; }  // outputs
  int num_cols() const { return num_cols_; }  // inputs

  // The packed order: for each block of kBlockDepth columns (matmul_tile.h)
  // panels of kPanelWidth rows, zero padded. A panel is k-major and of dtype(),
  // or as in quantized_panel.h. In bf16 the two halves of a k's kPanelWidth
  // rows alternate: 0, 16, 1, 17, ... Each 32 bits then hold one weight of
  // either half, and both widen to floats in place.
  WeightFormat format() const { return format_; }
  DType dtype() const { return dtype_; }  // kAsStored only
  // Returns panel `panel` of the block that begins at column `k`.
  // REQUIRES: k is a multiple of kBlockDepth.
  const std::byte* panel(int k, int panel) const {
    return panels_.data() + PanelOffset(k, panel);
  }
  // Returns the bytes from one panel to the next in the block that begins at
  // column `k`.
  size_t panel_bytes(int k) const;
  size_t num_bytes() const { return PanelOffset(num_cols_, 0); }

 private:
  int num_panels() const;
  size_t PanelOffset(int k, int panel) const;
  // Returns the bytes of the columns before `k` in one panel per block.
  size_t BytesBefore(int k) const;

  int num_rows_ = 0;
  int num_cols_ = 0;
  WeightFormat format_ = WeightFormat::kAsStored;
  DType dtype_ = DType::kFloat32;  // if kAsStored
  PanelMemory panels_;
};

}  // namespace espalier
