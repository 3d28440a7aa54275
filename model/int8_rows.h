// Rows of int8 matrices, as CTranslate2 stores them: a weight is its code
// divided by the scale of its row, in float32, and then rounded to nearest even
// to the type that the model's other weights have.
//
// The int8 weights that products use (kernels/matmul/weight_format.h) have
// bf16 scales, of 128 inputs each, which these codes cannot be taken for; with
// --weights int8 they are quantised again from the weights.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/thread_pool.h"
#include "model/transformer_tensors.h"

namespace espalier {

// Writes a row's weights, [codes.size()] of `dtype`.
void WidenInt8Row(std::span<const std::byte> codes, float scale, DType dtype,
                  std::byte* to);

// Dequantises all rows on the threads of `pool`.
//   result  [num_rows, num_cols]  of tensor.dtype
// REQUIRES: tensor.is_int8().
std::vector<std::byte> WidenInt8(const TransformerTensor& tensor,
                                 ThreadPool& pool);

}  // namespace espalier
