// Matrix products of activations with weights: y = x * w^T, the one heavy
// operation of a forward pass.
//
// Weights are packed once at load, as they come (bf16 stays bf16 in memory and
// is widened in registers, which is exact; f16 is widened at load). Every
// output is one float32 chain of fused multiply-adds over k in ascending
// order, whatever the number of rows or threads: a row's result is the same
// bits alone and among others.
//
//   const PackedMatrix qkv = PackedMatrix::Pack(parts, hidden_size);
//   MatMul(x, qkv, y, pool);  // n rows of x give n rows of y
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/aligned_vector.h"

namespace espalier {

enum class DType { kFloat32, kBFloat16, kFloat16 };

constexpr int NumBytes(DType dtype) { return dtype == DType::kFloat32 ? 4 : 2; }

// Exact widening of one stored number, little-endian, any alignment.
float LoadAsFloat(const std::byte* data, DType dtype);

// A weight matrix w, packed for MatMul. Immutable, movable.
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

// y = x * w^T.
//   x  [n, w.num_cols()]  f32  row-major
//   y  [n, w.num_rows()]  f32  row-major, out; not overlapping x
// n is x.size() / w.num_cols(). NaN and infinities propagate as in the scalar
// chain. On a CPU without fused multiply-add each step rounds twice.
//
// Reads the weights from memory about once, whatever n: a few rows run at the
// speed of memory, many at that of the multipliers. In the shapes of
// models/en-fr, on one thread of an EPYC 9004 (Zen 4, AVX-512), which reaches
// 117 GFLOP/s with multiply-adds alone: 103 at 64 rows of bf16 and 114 of f32;
// at one row, 55 GB/s of weights (benchmarks/kernels/matmul_benchmark.cc).
void MatMul(std::span<const float> x, const PackedMatrix& w, std::span<float> y,
            ThreadPool& pool);

namespace reference {

// The twin: the same product of unpacked float32 weights, summed in double.
//   w  [num_rows, num_cols]
std::vector<double> MatMul(std::span<const float> x, std::span<const float> w,
                           int num_cols);

}  // namespace reference
}  // namespace espalier
