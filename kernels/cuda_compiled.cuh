// Kernels whose instructions not every architecture has.
#pragma once

#include <cuda_runtime.h>

namespace espalier {

// Whether `kernel`, which has static shared memory, is there on this device. A
// build for other architectures leaves it empty, and then it has none.
template <typename... Params>
bool IsCompiled(void (*kernel)(Params...)) {
  cudaFuncAttributes attributes = {};
  if (cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess) {
    return attributes.sharedSizeBytes > 0;
  }
  cudaGetLastError();  // which clears it
  return false;
}

}  // namespace espalier
