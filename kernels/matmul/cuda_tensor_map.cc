#include "kernels/matmul/cuda_tensor_map.h"

#include <cuda_runtime_api.h>

#include "base/cuda.h"
#include "base/status.h"

namespace espalier {

absl::StatusOr<TensorMapEncoder> GetTensorMapEncoder() {
  constexpr const char* kName = "cuTensorMapEncodeTiled";
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = {};
#if CUDART_VERSION >= 12050
  constexpr int kSince = 12000;  // CUDA 12.0
  RETURN_IF_CUDA_ERROR(cudaGetDriverEntryPointByVersion(
      kName, &found, kSince, cudaEnableDefault, &result));
#else  // CUDA 12.4 has only what later ones call deprecated.
  RETURN_IF_CUDA_ERROR(
      cudaGetDriverEntryPoint(kName, &found, cudaEnableDefault, &result));
#endif
  if (found == nullptr || result != cudaDriverEntryPointSuccess) {
    return Internal("the driver has no cuTensorMapEncodeTiled");
  }
  return reinterpret_cast<TensorMapEncoder>(found);
}

absl::StatusOr<CUtensorMap> MakeTensorMap(TensorMapEncoder encode,
                                          const TiledMatrix& matrix) {
  CUtensorMap map;
  const cuuint64_t sizes[] = {cuuint64_t(matrix.num_cols),
                              cuuint64_t(matrix.num_rows)};
  const cuuint64_t strides[] = {cuuint64_t(matrix.num_cols) *
                                matrix.element_bytes};
  const cuuint32_t tile[] = {cuuint32_t(matrix.tile_cols),
                             cuuint32_t(matrix.tile_rows)};
  const cuuint32_t steps[] = {1, 1};
  const CUresult result = encode(
      &map, matrix.type, 2, const_cast<void*>(matrix.data), sizes, strides,
      tile, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, matrix.swizzle,
      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    return Internal("cuTensorMapEncodeTiled: error ", static_cast<int>(result));
  }
  return map;
}

}  // namespace espalier
