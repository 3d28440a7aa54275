// Weights, and the split-K partials of matrix products, in device memory.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace espalier {

// Weights in device memory. Kernels prefetch them before the previous kernels
// have ended, so no kernel in flight on the stream may write them (synchronise
// after loading).
//   data  [num_rows, num_cols]  row-major, 16-byte aligned
// num_cols is a multiple of 8 (zero padded if a model's is not).
struct CudaMatrix {
  const void* data = nullptr;
  DType dtype = DType::kBFloat16;  // kBFloat16, kFloat16 or kFloat32
  int num_rows = 0;                // outputs
  int num_cols = 0;                // inputs
  // Not null: data are e4m3 codes in the order of matmul/fp8_order.h, num_cols
  // a multiple of 64 and num_rows padded to one of 8 with zeros, and each
  // stands for bf16(code * scale) (matmul/fp8.h). dtype is kBFloat16.
  //   fp8_scales  [num_rows, padded alike]  bf16, each less than 2^8
  const uint16_t* fp8_scales = nullptr;
};

// Partial sums of a product that CudaAddRmsNorm or CudaAddBranch adds to the
// residual stream, in the scratch of its CudaMatMul: valid until its next call.
struct SplitKPartials {
  const float* data = nullptr;  // [count, n, num_rows]
  int count = 0;                // 1, 2 or 4; 0: the sum is complete
};

}  // namespace espalier
