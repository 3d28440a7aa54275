// The choice of the kernel of a product: a function of its shapes and of the
// device, so that a row has the same bits in every call with as many rows. The
// table of candidates is in cuda_matmul.cu.
#pragma once

#include "absl/status/statusor.h"
#include "base/cuda_resources.h"
#include "kernels/cuda_matrix.h"
#include "kernels/matmul/cuda_fp8_gemm.h"
#include "kernels/matmul/cuda_gate_up_gemm.h"
#include "kernels/matmul/cuda_matmul.h"
#include "kernels/matmul/cuda_matmul_tuning.h"

namespace espalier {

enum class CudaMatMulKernel {
  kFp8Skinny,   // cuda_fp8_skinny.h
  kFp8Gemm,     // cuda_fp8_gemm.h
  kFp8Widened,  // cuda_fp8_dequantize.h, then kBlas
  kSkinny,      // cuda_skinny_matmul.h
  kGateUpGemm,  // cuda_gate_up_gemm.h
  kSmallGemm,   // cuda_small_gemm.h
  kBlas,        // cuda_blas_matmul.h
};

// The kernels that products on a device can use.
struct CudaMatMulKernels {
  CudaDevice device;
  const CudaMatMulTuning* tuning = nullptr;
  CudaGateUpGemm gate_up;
  CudaFp8Gemm fp8_gemm;
  // cuBLASLt is loaded. Without it the matrices are small (kSmallMatrix).
  bool has_blas = true;

  // Errors: kInternal if the device or its driver refuses a kernel.
  static absl::StatusOr<CudaMatMulKernels> Prepare(const CudaDevice& device,
                                                   bool has_fp8_weights);
};

// Returns the first candidate that can run the product and is expected to be
// faster than those after it. Reads no weights.
// REQUIRES: num_rows >= 1, and shapes that CudaMatMul accepts.
CudaMatMulKernel ChooseMatMulKernel(const CudaMatMulKernels& kernels,
                                    int num_rows, const CudaMatrix& w,
                                    CudaEpilogue epilogue);

}  // namespace espalier
