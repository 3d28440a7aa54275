// y = x * w^T of e4m3 weights for few rows on the device, bound by reading w:
// the kernel of cuda_skinny_matmul.h for weights of half the bytes.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "base/cuda.h"
#include "kernels/matmul/cuda_matmul.h"
#include "kernels/matmul/cuda_skinny_matmul.h"

namespace espalier {

// True if Fp8SkinnyMatMul supports `num_rows` rows on this device.
bool HasFp8Skinny(int num_rows, const CudaDevice& device);

// Prepares the kernels, if this device can run them. Call once, before the
// first product.
absl::Status PrepareFp8Skinny(const CudaDevice& device);

// out = epilogue(x * w^T), as CudaMatMul::Run. Needs no scratch.
//   x  [num_rows, w.num_cols]  bf16
// REQUIRES: w.fp8_scales; HasFp8Skinny(num_rows, device); num_rows >= 1.
absl::Status Fp8SkinnyMatMul(const void* x, int num_rows, const CudaMatrix& w,
                             CudaEpilogue epilogue, void* out,
                             const CudaDevice& device, cudaStream_t stream);

// Fp8SkinnyMatMul with a given division, for benchmarks.
absl::Status Fp8SkinnyDivided(const void* x, int num_rows, const CudaMatrix& w,
                              CudaEpilogue epilogue, void* out,
                              const SkinnyDivision& division,
                              cudaStream_t stream);

}  // namespace espalier
