#include "base/cuda_device_scope.h"

#include <cuda_runtime_api.h>

#include "base/cuda.h"

namespace espalier {

absl::StatusOr<CudaDeviceScope> CudaDeviceScope::Enter(int ordinal) {
  int current = 0;
  RETURN_IF_CUDA_ERROR(cudaGetDevice(&current));
  if (current == ordinal) return CudaDeviceScope(kSame);
  RETURN_IF_CUDA_ERROR(cudaSetDevice(ordinal));
  return CudaDeviceScope(current);
}

CudaDeviceScope CudaDeviceScope::EnterIfPossible(int ordinal) {
  absl::StatusOr<CudaDeviceScope> scope = Enter(ordinal);
  return scope.ok() ? *std::move(scope) : CudaDeviceScope(kSame);
}

CudaDeviceScope::~CudaDeviceScope() {
  if (previous_ == kSame) return;
  if (cudaSetDevice(previous_) != cudaSuccess) cudaGetLastError();
}

}  // namespace espalier
