// The rows of a matrix in e4m3 (kernels/matmul/fp8.h), which a checkpoint has
// or which are made of its numbers.
//
// A stored matrix has codes and scales, w = code * scale. Scales become
// bfloat16 when they are read, and what a code stands for from then on is
// bf16(code * scale): that of transformers, where it dequantises to bfloat16
// and the scales are stored so.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/thread_pool.h"
#include "model/transformer_tensors.h"

namespace espalier {

// kInvalidArgument naming the first that is not in [0, 256).
absl::Status CheckFp8Scales(const Fp8Scales& scales);

// Writes the codes of a row and returns its scale.
//   codes  [tensor.num_cols()]  out
// Errors: kInvalidArgument naming the tensor and the row if a number is not
// finite, or so large that the scale would not be less than 256.
absl::StatusOr<float> ReadFp8Row(const TransformerTensor& tensor, int row,
                                 uint8_t* codes);

// What the codes of all rows stand for, by the threads of `pool`.
//   [num_rows, num_cols]  bf16
// Errors: as ReadFp8Row, of one of the rows.
absl::StatusOr<std::vector<uint16_t>> WidenFp8(const TransformerTensor& tensor,
                                               ThreadPool& pool);

}  // namespace espalier
