// Matrix products of activations with weights: y = x * w^T, the one heavy
// operation of a forward pass.
//
// Weights are packed once at load (packed_matrix.h). bf16 and f16 are widened
// in registers, which is exact: y has the same bits as with the same weights in
// f32. Every output is one float32 chain of fused multiply-adds over k in
// ascending order, or with quantised weights the sum defined in
// weight_format.h, whatever the number of rows or threads: a row's result has
// the same bits alone and among others.
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
// Reads the weights from memory about once, whatever n: a few rows are bound by
// memory bandwidth, many by arithmetic. On one thread of an AMD EPYC (Zen 5,
// AVX-512), benchmarks/kernels/matmul_benchmark.cc, by CPU time: weights in the
// second-level cache give 245 GFLOP/s at 64 rows, in bf16, f16 or f32, and 670
// in int8; 67 MB of bf16 weights are read at 30 GB/s with 1 row or 4, 23 with
// 8, where a pure read reaches 36.
void MatMul(std::span<const float> x, const PackedMatrix& w, std::span<float> y,
            ThreadPool& pool);

namespace reference {

// Reference implementation: the product of unpacked float32 weights, summed in
// double.
//   w  [num_rows, num_cols]
std::vector<double> MatMul(std::span<const float> x, std::span<const float> w,
                           int num_cols);

// The product of quantised weights (weight_format.h): the same bits.
std::vector<float> QuantizedMatMul(std::span<const float> x,
                                   std::span<const float> w, int num_cols,
                                   WeightFormat format);

}  // namespace reference
}  // namespace espalier
