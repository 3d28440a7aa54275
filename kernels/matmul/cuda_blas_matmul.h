// y = x * w^T through cuBLASLt: products with many rows, and f32 products.
//
// Thread safety: one thread, one stream at a time (the workspace is shared).
#pragma once

#include <cuda_runtime_api.h>

#include <compare>
#include <cstddef>
#include <map>
#include <memory>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/cuda.h"
#include "kernels/matmul/cuda_blas_library.h"
#include "kernels/matmul/cuda_matmul.h"

namespace espalier {

class CudaBlasMatMul {
 public:
  // Errors: kResourceExhausted; kFailedPrecondition without cuBLASLt;
  // kInternal if it fails.
  static absl::StatusOr<std::unique_ptr<CudaBlasMatMul>> Create();

  // out = x * w^T, or out += x * w^T.
  //   x    [num_rows, w.num_cols]   the weights' dtype
  //   out  [num_rows, w.num_rows]   out_dtype: the weights', or f32
  // All 16-byte aligned. Sums are float32; f32 is multiplied as f32.
  // The first product of a bucket of rows (NumBucketRows) asks cuBLASLt for an
  // algorithm, which takes 0.3 ms of the host and loads kernels. The first
  // product of each number of rows checks that algorithm, 2 to 8 us. Later ones
  // only enqueue. All may be captured.
  // Errors: kInternal if cuBLASLt has no algorithm, or fails.
  absl::Status Run(const void* x, int num_rows, const CudaMatrix& w,
                   DType out_dtype, bool add, void* out, cudaStream_t stream);

  // out[p] = x * w^T over the p-th of `num_parts` equal runs of the inputs.
  //   out  [num_parts, num_rows, w.num_rows]  f32
  // REQUIRES: a run is a multiple of 16 bytes.
  absl::Status RunParts(const void* x, int num_rows, const CudaMatrix& w,
                        int num_parts, float* out, cudaStream_t stream);

 private:
  template <auto kDestroy>
  struct Destroy {
    const CudaBlasLibrary* blas;
    template <typename Handle>
    void operator()(Handle* handle) const {
      (blas->*kDestroy)(handle);
    }
  };
  template <typename Handle, auto kDestroy>
  using Owned =
      std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<kDestroy>>;
  using OwnedHandle = Owned<cublasLtHandle_t, &CudaBlasLibrary::destroy>;
  using OwnedLayout =
      Owned<cublasLtMatrixLayout_t, &CudaBlasLibrary::layout_destroy>;
  using OwnedProduct =
      Owned<cublasLtMatmulDesc_t, &CudaBlasLibrary::desc_destroy>;
  using OwnedPreference =
      Owned<cublasLtMatmulPreference_t, &CudaBlasLibrary::preference_destroy>;

  // A product without the addresses of its data.
  struct Shape {
    int num_rows = 0;
    int num_outputs = 0;
    int num_inputs = 0;
    DType dtype = DType::kBFloat16;
    DType out_dtype = DType::kBFloat16;
    bool add = false;
    int num_parts = 1;
    auto operator<=>(const Shape&) const = default;
  };
  struct Plan {
    OwnedProduct product;
    OwnedLayout w;
    OwnedLayout x;
    OwnedLayout out;
    cublasLtMatmulAlgo_t algorithm;
  };

  explicit CudaBlasMatMul(const CudaBlasLibrary& blas) : blas_(blas) {}
  absl::Status Enqueue(const Shape& shape, const void* x, const void* w,
                       void* out, cudaStream_t stream);
  // Makes `layout` a batch of `count` matrices, `stride` elements apart.
  absl::Status SetBatch(cublasLtMatrixLayout_t layout, int32_t count,
                        int64_t stride) const;
  absl::StatusOr<OwnedLayout> MakeLayout(DType dtype, int num_cols,
                                         int num_rows) const;
  absl::StatusOr<OwnedLayout> MakeInputLayout(const Shape& shape,
                                              int num_rows) const;
  absl::StatusOr<OwnedLayout> MakeOutputLayout(const Shape& shape) const;
  absl::StatusOr<Plan> MakePlan(const Shape& shape);
  // Makes the product and the layouts, but not the algorithm.
  absl::StatusOr<Plan> DescribePlan(const Shape& shape) const;
  // Returns the algorithm of the shape's bucket.
  absl::StatusOr<cublasLtMatmulAlgo_t> FindAlgorithm(Shape shape);
  absl::StatusOr<cublasLtMatmulAlgo_t> ChooseAlgorithm(const Shape& shape,
                                                       const Plan& plan) const;
  bool CanRun(const cublasLtMatmulAlgo_t& algorithm, const Plan& plan) const;

  const CudaBlasLibrary& blas_;
  OwnedHandle handle_;
  DeviceBuffer<char> workspace_;
  std::map<Shape, Plan> plans_;
  std::map<Shape, cublasLtMatmulAlgo_t> algorithms_;  // by bucket
};

// Returns the number of rows for which the algorithm is chosen: the least
// number of at least `num_rows` that has three significant bits (..., 8, 10,
// 12, 14, 16, 20, ...), at most a quarter more. Buckets bound the number of
// choices, as prompts come in any number of rows.
// REQUIRES: num_rows >= 1.
constexpr int NumBucketRows(int num_rows) {
  int unit = 1;
  while (num_rows > 8 * unit) unit *= 2;
  return (num_rows + unit - 1) / unit * unit;
}

}  // namespace espalier
