#include "kernels/matmul/cuda_fp8_matmul.h"

#include "base/status.h"
#include "kernels/matmul/cuda_fp8_dequantize.h"
#include "kernels/matmul/cuda_fp8_skinny.h"
#include "kernels/matmul/fp8_order.h"

namespace espalier {
namespace {

// Up to this many rows the skinny kernel is faster, or nearly.
constexpr int kMaxSkinnyRows = 16;
// With more rows it is cheaper to widen the weights first.
constexpr int kMaxGemmRows = 1024;

}  // namespace

absl::StatusOr<std::unique_ptr<CudaFp8MatMul>> CudaFp8MatMul::Create(
    const CudaDevice& device, int64_t max_weights) {
  std::unique_ptr<CudaFp8MatMul> made(new CudaFp8MatMul);
  made->device_ = device;
  made->max_weights_ = max_weights;
  RETURN_IF_ERROR(PrepareFp8Skinny(device));
  ASSIGN_OR_RETURN(made->gemm_, CudaFp8Gemm::Create(device));
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

bool CudaFp8MatMul::CanImplement(int num_rows, const CudaMatrix& w) const {
  return HasFp8Skinny(num_rows, device_) ||
         (gemm_.CanImplement(w) && num_rows <= kMaxGemmRows);
}

absl::Status CudaFp8MatMul::Run(const void* x, int num_rows,
                                const CudaMatrix& w, CudaEpilogue epilogue,
                                void* out, cudaStream_t stream) const {
  const bool has_skinny = HasFp8Skinny(num_rows, device_);
  if (has_skinny && (num_rows <= kMaxSkinnyRows || !gemm_.CanImplement(w))) {
    return Fp8SkinnyMatMul(x, num_rows, w, epilogue, out, device_, stream);
  }
  return gemm_.Run(x, num_rows, w, epilogue,
                   gemm_.Divide(num_rows, w, /*may_split=*/false), out, stream);
}

int CudaFp8MatMul::NumParts(int num_rows, const CudaMatrix& w) const {
  if (num_rows <= kMaxSkinnyRows || num_rows > kMaxGemmRows ||
      !gemm_.CanImplement(w)) {
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
