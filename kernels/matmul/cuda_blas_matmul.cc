#include "kernels/matmul/cuda_blas_matmul.h"

#include <algorithm>
#include <span>
#include <utility>

namespace espalier {
namespace {

// NVIDIA's recommendation for Hopper. More has not been faster.
constexpr size_t kWorkspaceBytes = size_t{32} << 20;

// Calls a function of `blas`, a CudaBlasLibrary, with these arguments.
#define RETURN_IF_BLAS_ERROR(blas, function, ...) \
  RETURN_IF_ERROR((blas).StatusOf((blas).function(__VA_ARGS__), #function))

cudaDataType_t CudaType(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return CUDA_R_16BF;
    case DType::kFloat16:
      return CUDA_R_16F;
    case DType::kFloat32:
      break;
  }
  return CUDA_R_32F;
}

// Proposals to consider. The first one, cuBLASLt's best, is taken, except for
// kWideOutputs or more outputs: then the first that gives some multiprocessors
// a second tile, because the start and end of one tile overlap with the reads
// of another. On an H200, 28,672 outputs of 4096 inputs take 62.7 instead of
// 65.5 us for 128 rows (256 tiles of 112 x 128, not 128 of 448 x 64), and 58.1
// instead of 60.8 us for 64. For a vocabulary and few rows it is the one with
// most tiles: 128,256 outputs take 284 instead of 293 us for 128 rows, 267
// instead of 292 for 64, 259 instead of 273 for 32.
constexpr int kNumProposals = 4;
constexpr int kWideOutputs = 24576;
constexpr int kWidestOutputs = 65536;
constexpr int kFewRows = 128;

cublasLtMatmulAlgo_t Choose(
    int num_rows, int num_outputs,
    std::span<const cublasLtMatmulHeuristicResult_t> proposals) {
  if (num_outputs >= kWidestOutputs && num_rows <= kFewRows) {
    return std::ranges::max_element(
               proposals, {}, &cublasLtMatmulHeuristicResult_t::wavesCount)
        ->algo;
  }
  if (num_outputs >= kWideOutputs) {
    for (const auto& proposal : proposals) {
      if (proposal.wavesCount > 1) return proposal.algo;
    }
  }
  return proposals[0].algo;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaBlasMatMul>> CudaBlasMatMul::Create() {
  ASSIGN_OR_RETURN(const CudaBlasLibrary* const blas, CudaBlasLibrary::Get());
  std::unique_ptr<CudaBlasMatMul> result(new CudaBlasMatMul(*blas));
  cublasLtHandle_t handle = nullptr;
  RETURN_IF_BLAS_ERROR(*blas, create, &handle);
  result->handle_ = OwnedHandle(handle, {blas});
  ASSIGN_OR_RETURN(result->workspace_,
                   DeviceBuffer<char>::Create(kWorkspaceBytes));
  // cuBLASLt only reads workspace that it has written, but some tools cannot
  // see that (tools/sanitize_gpu.sh).
  RETURN_IF_CUDA_ERROR(
      cudaMemset(result->workspace_.data(), 0, kWorkspaceBytes));
  return result;
}

absl::Status CudaBlasMatMul::Run(const void* x, int num_rows,
                                 const CudaMatrix& w, DType out_dtype, bool add,
                                 void* out, cudaStream_t stream) {
  return Enqueue({.num_rows = num_rows,
                  .num_outputs = w.num_rows,
                  .num_inputs = w.num_cols,
                  .dtype = w.dtype,
                  .out_dtype = out_dtype,
                  .add = add},
                 x, w.data, out, stream);
}

absl::Status CudaBlasMatMul::RunParts(const void* x, int num_rows,
                                      const CudaMatrix& w, int num_parts,
                                      float* out, cudaStream_t stream) {
  return Enqueue({.num_rows = num_rows,
                  .num_outputs = w.num_rows,
                  .num_inputs = w.num_cols,
                  .dtype = w.dtype,
                  .out_dtype = DType::kFloat32,
                  .num_parts = num_parts},
                 x, w.data, out, stream);
}

absl::Status CudaBlasMatMul::Enqueue(const Shape& shape, const void* x,
                                     const void* w, void* out,
                                     cudaStream_t stream) {
  auto found = plans_.find(shape);
  if (found == plans_.end()) {
    ASSIGN_OR_RETURN(Plan made, MakePlan(shape));
    found = plans_.emplace(shape, std::move(made)).first;
  }
  const Plan& plan = found->second;
  const float alpha = 1;
  const float beta = shape.add ? 1 : 0;
  RETURN_IF_BLAS_ERROR(blas_, matmul, handle_.get(), plan.product.get(), &alpha,
                       w, plan.w.get(), x, plan.x.get(), &beta, out,
                       plan.out.get(), out, plan.out.get(), &plan.algorithm,
                       workspace_.data(), workspace_.size_bytes(), stream);
  return absl::OkStatus();
}

// cuBLASLt is column-major: a row-major [rows, cols] is its cols x rows.
absl::StatusOr<CudaBlasMatMul::OwnedLayout> CudaBlasMatMul::MakeLayout(
    DType dtype, int num_cols, int num_rows) const {
  cublasLtMatrixLayout_t layout = nullptr;
  RETURN_IF_BLAS_ERROR(blas_, layout_create, &layout, CudaType(dtype), num_cols,
                       num_rows, num_cols);
  return OwnedLayout(layout, {&blas_});
}

absl::Status CudaBlasMatMul::SetBatch(cublasLtMatrixLayout_t layout,
                                      int32_t count, int64_t stride) const {
  RETURN_IF_BLAS_ERROR(blas_, layout_set_attribute, layout,
                       CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                       sizeof(count));
  RETURN_IF_BLAS_ERROR(blas_, layout_set_attribute, layout,
                       CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                       sizeof(stride));
  return absl::OkStatus();
}

// Parts are a batch of products: rows are num_inputs apart in each.
absl::StatusOr<CudaBlasMatMul::OwnedLayout> CudaBlasMatMul::MakeInputLayout(
    const Shape& shape, int num_rows) const {
  const int part = shape.num_inputs / shape.num_parts;
  ASSIGN_OR_RETURN(OwnedLayout layout, MakeLayout(shape.dtype, part, num_rows));
  const int64_t stride = shape.num_inputs;
  RETURN_IF_BLAS_ERROR(blas_, layout_set_attribute, layout.get(),
                       CUBLASLT_MATRIX_LAYOUT_LD, &stride, sizeof(stride));
  RETURN_IF_ERROR(SetBatch(layout.get(), shape.num_parts, part));
  return layout;
}

absl::StatusOr<CudaBlasMatMul::OwnedLayout> CudaBlasMatMul::MakeOutputLayout(
    const Shape& shape) const {
  ASSIGN_OR_RETURN(
      OwnedLayout layout,
      MakeLayout(shape.out_dtype, shape.num_outputs, shape.num_rows));
  RETURN_IF_ERROR(SetBatch(layout.get(), shape.num_parts,
                           int64_t{shape.num_rows} * shape.num_outputs));
  return layout;
}

// Computes out^T = w x^T; w is stored transposed.
absl::StatusOr<CudaBlasMatMul::Plan> CudaBlasMatMul::DescribePlan(
    const Shape& shape) const {
  Plan plan;
  cublasLtMatmulDesc_t product = nullptr;
  // Products and sums in float32, never tf32.
  RETURN_IF_BLAS_ERROR(blas_, desc_create, &product, CUBLAS_COMPUTE_32F,
                       CUDA_R_32F);
  plan.product = OwnedProduct(product, {&blas_});
  const cublasOperation_t transposed = CUBLAS_OP_T;
  RETURN_IF_BLAS_ERROR(blas_, desc_set_attribute, product,
                       CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                       sizeof(transposed));
  ASSIGN_OR_RETURN(plan.w, MakeInputLayout(shape, shape.num_outputs));
  ASSIGN_OR_RETURN(plan.x, MakeInputLayout(shape, shape.num_rows));
  ASSIGN_OR_RETURN(plan.out, MakeOutputLayout(shape));
  return plan;
}

absl::StatusOr<CudaBlasMatMul::Plan> CudaBlasMatMul::MakePlan(
    const Shape& shape) {
  ASSIGN_OR_RETURN(Plan plan, DescribePlan(shape));
  const absl::StatusOr<cublasLtMatmulAlgo_t> of_bucket = FindAlgorithm(shape);
  if (of_bucket.ok() && CanRun(*of_bucket, plan)) {
    plan.algorithm = *of_bucket;
  } else {
    ASSIGN_OR_RETURN(plan.algorithm, ChooseAlgorithm(shape, plan));
  }
  return plan;
}

absl::StatusOr<cublasLtMatmulAlgo_t> CudaBlasMatMul::FindAlgorithm(
    Shape shape) {
  shape.num_rows = NumBucketRows(shape.num_rows);
  const auto found = algorithms_.find(shape);
  if (found != algorithms_.end()) return found->second;
  ASSIGN_OR_RETURN(const Plan plan, DescribePlan(shape));
  ASSIGN_OR_RETURN(const cublasLtMatmulAlgo_t chosen,
                   ChooseAlgorithm(shape, plan));
  algorithms_.emplace(shape, chosen);
  return chosen;
}

bool CudaBlasMatMul::CanRun(const cublasLtMatmulAlgo_t& algorithm,
                            const Plan& plan) const {
  cublasLtMatmulHeuristicResult_t result = {};
  const cublasStatus_t status = blas_.algo_check(
      handle_.get(), plan.product.get(), plan.w.get(), plan.x.get(),
      plan.out.get(), plan.out.get(), &algorithm, &result);
  return status == CUBLAS_STATUS_SUCCESS &&
         result.state == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= kWorkspaceBytes;
}

// Does not time proposals: the choice, and with it the bits, could differ from
// process to process.
absl::StatusOr<cublasLtMatmulAlgo_t> CudaBlasMatMul::ChooseAlgorithm(
    const Shape& shape, const Plan& plan) const {
  cublasLtMatmulPreference_t made = nullptr;
  RETURN_IF_BLAS_ERROR(blas_, preference_create, &made);
  const OwnedPreference preference(made, {&blas_});
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t name,
                       const auto& value) {
    return blas_.StatusOf(blas_.preference_set_attribute(preference.get(), name,
                                                         &value, sizeof(value)),
                          "preference_set_attribute");
  };
  RETURN_IF_ERROR(
      set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes));
  // Parts of sums are added as float32, never rounded to 16 bits.
  if (shape.out_dtype != DType::kFloat32) {
    RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                        uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}));
  }
  for (const auto name : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    RETURN_IF_ERROR(set(name, uint32_t{16}));
  }
  cublasLtMatmulHeuristicResult_t proposals[kNumProposals];
  int num_found = 0;
  RETURN_IF_BLAS_ERROR(blas_, algo_get_heuristic, handle_.get(),
                       plan.product.get(), plan.w.get(), plan.x.get(),
                       plan.out.get(), plan.out.get(), preference.get(),
                       kNumProposals, proposals, &num_found);
  if (num_found == 0) {
    return Internal("cuBLASLt has no product of ", shape.num_rows, " x ",
                    shape.num_inputs, " and ", shape.num_inputs, " x ",
                    shape.num_outputs);
  }
  return Choose(shape.num_rows, shape.num_outputs,
                {proposals, size_t(num_found)});
}

}  // namespace espalier
