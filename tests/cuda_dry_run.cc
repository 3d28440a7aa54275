#include "tests/cuda_dry_run.h"

#include <cstdint>
#include <utility>

namespace espalier::testing {
namespace {

int compiled_capability = 90;
uintptr_t next_address = 0x1000;
std::vector<DryLaunch> launches;

}  // namespace

cudaStream_t BeginDryRun(int capability) {
  compiled_capability = capability;
  launches.clear();
  next_address += 0x1000;
  return reinterpret_cast<cudaStream_t>(next_address);
}

std::vector<DryLaunch> TakeDryLaunches() { return std::exchange(launches, {}); }

extern "C" {

// NOLINTBEGIN: the linker gives these their names.
cudaError_t __wrap_cudaMalloc(void** memory, size_t) {
  next_address += 0x1000;
  *memory = reinterpret_cast<void*>(next_address);
  return cudaSuccess;
}
cudaError_t __wrap_cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = *total_bytes = size_t{1} << 40;
  return cudaSuccess;
}
cudaError_t __wrap_cudaFree(void*) { return cudaSuccess; }
cudaError_t __wrap_cudaMemset(void*, int, size_t) { return cudaSuccess; }
cudaError_t __wrap_cudaMemsetAsync(void*, int, size_t, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t __wrap_cudaMemcpy(void*, const void*, size_t, cudaMemcpyKind) {
  return cudaSuccess;
}
cudaError_t __wrap_cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t __wrap_cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t __wrap_cudaFuncGetAttributes(cudaFuncAttributes* attributes,
                                         const void*) {
  *attributes = {};
  attributes->ptxVersion = compiled_capability;
  attributes->sharedSizeBytes = compiled_capability >= 90 ? 1 : 0;
  return cudaSuccess;
}
cudaError_t __wrap_cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  return cudaSuccess;
}
// As a device would where the launch is allowed, also of code without clusters.
cudaError_t __wrap_cudaOccupancyMaxActiveClusters(int* num_clusters,
                                                  const void*,
                                                  const cudaLaunchConfig_t*) {
  *num_clusters = 16;
  return cudaSuccess;
}
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t* config,
                                       const void*, void**) {
  DryLaunch launch = {.grid = config->gridDim};
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization) {
      launch.starts_early =
          attribute.val.programmaticStreamSerializationAllowed != 0;
    } else if (attribute.id == cudaLaunchAttributeClusterDimension) {
      launch.cluster = static_cast<int>(attribute.val.clusterDim.x);
    }
  }
  launches.push_back(launch);
  return cudaSuccess;
}
// NOLINTEND

}  // extern "C"

}  // namespace espalier::testing
