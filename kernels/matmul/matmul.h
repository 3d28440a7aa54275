// Matrix products of activations with weights: y = x * w^T, the one heavy
// operation of a forward pass.
//
// Weights are packed once at load (packed_matrix.h); bf16 and f16 are widened
// in registers, which is exact: y is the same bits as that of the same weights
// in f32. Every output is one float32 chain of fused multiply-adds over k in
// ascending order, or with quantised weights what weight_format.h says,
// whatever the number of rows or threads: a row's result is the same bits alone
// and among others.
//
//   const PackedMatrix qkv = PackedMatrix::Pack(parts, hidden_size, pool);
//   MatMul(x, qkv, y, pool);  // n rows of x give n rows of y
#pragma once

#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/matmul/packed_matrix.h"

namespace espalier {

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

// That of quantised weights (weight_format.h): the same bits.
std::vector<float> QuantizedMatMul(std::span<const float> x,
                                   std::span<const float> w, int num_cols,
                                   WeightFormat format);

}  // namespace reference
}  // namespace espalier
