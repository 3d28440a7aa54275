// y = x * w^T for few rows on the device, up to 48, bound by reading w. The
// kernel (cuda_skinny_matmul.cuh) begins to read the weights before the
// previous kernel of the stream has ended.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "base/cuda.h"
#include "kernels/matmul/cuda_matmul.h"
#include "kernels/matmul/cuda_matmul_tuning.h"

namespace espalier {

// True if SkinnyMatMul supports this product: a 16-bit dtype; more than 16 rows
// only with at most three tiles of outputs a multiprocessor and code that has
// programmatic dependent launch.
// REQUIRES: `device` is the calling thread's current one, whose compiled code
// is inspected.
bool CanRunSkinnyMatMul(int num_rows, const CudaMatrix& w,
                        const CudaDevice& device);
// True if it is measured to be faster than cuBLASLt.
// REQUIRES: CanRunSkinnyMatMul.
bool SkinnyMatMulIsProfitable(int num_rows, const CudaMatrix& w,
                              const CudaDevice& device,
                              const CudaMatMulTuning& tuning);

// Prepares the kernels, if this device can run them. Call once, before the
// first product.
absl::Status PrepareSkinnyMatMul(const CudaDevice& device);

// out = epilogue(x * w^T), as CudaMatMul::Run. Needs no scratch.
// REQUIRES: CanRunSkinnyMatMul(num_rows, w, device); num_rows >= 1.
absl::Status SkinnyMatMul(const void* x, int num_rows, const CudaMatrix& w,
                          CudaEpilogue epilogue, void* out,
                          const CudaDevice& device, cudaStream_t stream);

// The division of a product.
struct SkinnyDivision {
  int splits = 1;     // split-K: blocks of a cluster
  int groups = 1;     // clusters, which divide the outputs
  int row_tiles = 1;  // tiles of 16 outputs in a pass
};

}  // namespace espalier
