#include "kernels/matmul/cuda_fp8_matmul.h"

#include "base/status.h"
#include "kernels/matmul/cuda_fp8_dequantize.h"
#include "kernels/matmul/cuda_fp8_skinny.h"
#include "kernels/matmul/fp8_order.h"

namespace espalier {

absl::StatusOr<std::unique_ptr<CudaFp8MatMul>> CudaFp8MatMul::Create(
    const CudaDevice& device, const CudaFp8Gemm& gemm, int64_t max_weights) {
  std::unique_ptr<CudaFp8MatMul> made(new CudaFp8MatMul);
  made->tuning_ = &MatMulTuningOf(device);
  made->max_weights_ = max_weights;
  RETURN_IF_ERROR(PrepareFp8Skinny(device));
  made->gemm_ = gemm;
  ASSIGN_OR_RETURN(made->widened_, DeviceBuffer<uint16_t>::Create(max_weights));
  return made;
}

absl::Status CudaFp8MatMul::Check(const CudaMatrix& w) const {
  if (w.dtype != DType::kBFloat16) {
    return InvalidArgument("weights of e4m3 must stand for bf16, got ",
                           w.dtype == DType::kFloat16 ? "f16" : "f32");
  }
  if (w.num_cols % kFp8RunInputs != 0) {
    return InvalidArgument("weights of e4m3 must have a multiple of ",
                           kFp8RunInputs, " columns, got ", w.num_cols);
  }
  const int64_t num_weights = int64_t{w.num_rows} * w.num_cols;
  if (num_weights > max_weights_) {
    return InvalidArgument("a matrix must have at most ", max_weights_,
                           " weights of e4m3, as planned for, got ",
                           num_weights, ": ", w.num_rows, " rows of ",
                           w.num_cols);
  }
  return absl::OkStatus();
}

int CudaFp8MatMul::NumParts(int num_rows, const CudaMatrix& w) const {
  if (num_rows <= tuning_->max_fp8_skinny_rows ||
      num_rows > tuning_->max_fp8_gemm_rows || !gemm_.CanImplement(w)) {
    return 1;
  }
  return gemm_.Divide(num_rows, w, /*may_split=*/true).parts;
}

absl::Status CudaFp8MatMul::RunParts(const void* x, int num_rows,
                                     const CudaMatrix& w, int num_parts,
                                     float* out, cudaStream_t stream) const {
  const Fp8Division division = gemm_.Divide(num_rows, w, /*may_split=*/true);
  if (division.parts != num_parts) {
    return Internal("a product in ", num_parts, " parts, not ", division.parts);
  }
  return gemm_.Run(x, num_rows, w, CudaEpilogue::kStoreFloat, division, out,
                   stream);
}

absl::StatusOr<CudaMatrix> CudaFp8MatMul::Widen(const CudaMatrix& w,
                                                cudaStream_t stream) {
  RETURN_IF_ERROR(CudaDequantizeFp8(w, widened_.data(), stream));
  return CudaMatrix{widened_.data(), DType::kBFloat16, w.num_rows, w.num_cols};
}

}  // namespace espalier
