// Rows of e4m3 matrices (kernels/matmul/fp8.h), stored in a checkpoint or
// quantised from its weights.
//
// A stored matrix has codes and scales, w = code * scale. Scales are rounded to
// bfloat16 when they are read, and w becomes bf16(code * scale). This equals
// transformers if it dequantises to bfloat16 and the scales are stored in it.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/thread_pool.h"
#include "model/transformer_tensors.h"

namespace espalier {

// Errors: kInvalidArgument naming the first scale outside [0, 256).
absl::Status CheckFp8Scales(const Fp8Scales& scales);

// Writes the codes of a row and returns its scale.
//   codes  [tensor.num_cols()]  out
// Errors: kInvalidArgument naming the tensor and the row if a number is not
// finite, or so large that the scale would not be less than 256.
absl::StatusOr<float> ReadFp8Row(const TransformerTensor& tensor, int row,
                                 uint8_t* codes);

// Dequantises all rows on the threads of `pool`.
//   result  [num_rows, num_cols]  bf16
// Errors: as ReadFp8Row, for one of the rows.
absl::StatusOr<std::vector<uint16_t>> WidenFp8(const TransformerTensor& tensor,
                                               ThreadPool& pool);

}  // namespace espalier
