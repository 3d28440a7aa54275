// y = x * w^T for few rows on the device, up to 48, bound by the reading of w:
// our own kernel (cuda_skinny_matmul.cuh), which begins to read the weights
// before the kernel in front of it in the stream has ended.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "base/cuda.h"
#include "kernels/matmul/cuda_matmul.h"

namespace espalier {

// Whether SkinnyMatMul is made for this product and, as measured, faster than
// cuBLASLt. REQUIRES: `device` is the calling thread's current one, of whose
// code it asks.
bool SkinnyMatMulIsProfitable(int num_rows, const CudaMatrix& w,
                              const CudaDevice& device);

// Readies the kernels, if this device can run them; once, before the first
// product.
absl::Status PrepareSkinnyMatMul(const CudaDevice& device);

// out = epilogue(x * w^T), as CudaMatMul::Run. Needs no scratch.
// REQUIRES: SkinnyMatMulIsProfitable(num_rows, w, device); num_rows >= 1.
absl::Status SkinnyMatMul(const void* x, int num_rows, const CudaMatrix& w,
                          CudaEpilogue epilogue, void* out,
                          const CudaDevice& device, cudaStream_t stream);

// How a product is divided.
struct SkinnyDivision {
  int splits = 1;     // of the inputs, among the blocks of a cluster
  int groups = 1;     // of the outputs, among clusters
  int row_tiles = 1;  // of 16 outputs, that a block has at once
};

}  // namespace espalier
