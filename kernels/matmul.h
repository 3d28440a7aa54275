// Matrix products of activations with weights: y = x * w^T, the one heavy
// operation of a forward pass.
//
// Weights are packed once at load, as they come (bf16 stays bf16 in memory and
// is widened in registers, which is exact; f16 is widened at load). Every
// output is one float32 chain of fused multiply-adds over k in ascending
// order, whatever the number of rows or threads: a row's result is the same
// bits alone and among others.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"

namespace espalier {

enum class DType { kFloat32, kBFloat16, kFloat16 };

constexpr int NumBytes(DType dtype) { return dtype == DType::kFloat32 ? 4 : 2; }

// Exact widening of one stored number.
float LoadAsFloat(const std::byte* data, DType dtype);

// A weight matrix w, packed for MatMul. Immutable, movable.
class PackedMatrix {
 public:
  PackedMatrix() = default;
  // One matrix of several stacked on top of each other (q, k, v), each
  //   [num_rows_i, num_cols]  row-major, little-endian, any alignment
  // REQUIRES: every part has num_rows_i * num_cols elements.
  struct Part {
    std::span<const std::byte> data;
    DType dtype = DType::kFloat32;
    int num_rows = 0;
  };
  static PackedMatrix Pack(std::span<const Part> parts, int num_cols);

  int num_rows() const { return num_rows_; }  // outputs
  int num_cols() const { return num_cols_; }  // inputs

 private:
  friend void MatMul(std::span<const float> x, const PackedMatrix& w,
                     std::span<float> y, ThreadPool& pool);
  int num_rows_ = 0;
  int num_cols_ = 0;
  DType dtype_ = DType::kFloat32;  // kFloat32 or kBFloat16
  // Panels of output rows, k-major inside a panel; zero padded.
  std::vector<std::byte> panels_;
};

// y = x * w^T.
//   x  [n, w.num_cols()]  f32  row-major
//   y  [n, w.num_rows()]  f32  row-major, out
// n is x.size() / w.num_cols().
void MatMul(std::span<const float> x, const PackedMatrix& w, std::span<float> y,
            ThreadPool& pool);

namespace reference {

// The twin: the same product of unpacked float32 weights, summed in double.
//   w  [num_rows, num_cols]
std::vector<double> MatMul(std::span<const float> x, std::span<const float> w,
                           int num_cols);

}  // namespace reference
}  // namespace espalier
