// y = x * w^T of e4m3 weights for few rows on the device, bound by the reading
// of w: the kernel of cuda_skinny_matmul.h for weights of half the bytes.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "base/cuda.h"
#include "kernels/matmul/cuda_matmul.h"
#include "kernels/matmul/cuda_skinny_matmul.h"

namespace espalier {

// Whether Fp8SkinnyMatMul is made for so many rows on this device.
bool HasFp8Skinny(int num_rows, const CudaDevice& device);

// Readies the kernels, if this device can run them; once, before the first
// product.
absl::Status PrepareFp8Skinny(const CudaDevice& device);

// out = epilogue(x * w^T), as CudaMatMul::Run. Needs no scratch.
//   x  [num_rows, w.num_cols]  bf16
// REQUIRES: w.fp8_scales; HasFp8Skinny(num_rows, device); num_rows >= 1.
absl::Status Fp8SkinnyMatMul(const void* x, int num_rows, const CudaMatrix& w,
                             CudaEpilogue epilogue, void* out,
                             const CudaDevice& device, cudaStream_t stream);

// As Fp8SkinnyMatMul, divided so; for measuring.
absl::Status Fp8SkinnyDivided(const void* x, int num_rows, const CudaMatrix& w,
                              CudaEpilogue epilogue, void* out,
                              const SkinnyDivision& division,
                              cudaStream_t stream);

}  // namespace espalier
