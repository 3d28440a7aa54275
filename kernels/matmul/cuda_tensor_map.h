// Tensor maps: descriptions of a matrix whose tiles TMA (compute capability
// 9.0) copies to shared memory. A CUtensorMap is passed as a kernel argument.
#pragma once

#include <cuda.h>

#include "absl/status/statusor.h"

namespace espalier {

using TensorMapEncoder = decltype(&cuTensorMapEncodeTiled);

// Finds the driver's function at run time, so that espalier does not link
// libcuda.
// Errors: kInternal if the driver has none.
absl::StatusOr<TensorMapEncoder> GetTensorMapEncoder();

// A row-major matrix in device memory, and its tiles; rows past the last are
// zeros.
struct TiledMatrix {
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  int element_bytes = 2;
  const void* data = nullptr;  // 16-byte aligned, rows in multiples of 16 bytes
  int num_rows = 0;
  int num_cols = 0;
  int tile_rows = 0;
  int tile_cols = 0;
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
};
// Errors: kInternal, with the driver's error number, if it refuses.
absl::StatusOr<CUtensorMap> MakeTensorMap(TensorMapEncoder encode,
                                          const TiledMatrix& matrix);

}  // namespace espalier
