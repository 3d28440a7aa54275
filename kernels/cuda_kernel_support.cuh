// Queries of kernel support on a device: not every architecture has a kernel's
// instructions, and not every device has room for its clusters.
#pragma once

#include <cuda_runtime.h>

#include "base/cuda_launch.cuh"

namespace espalier {

// True if this device has code for `kernel`, which must have static shared
// memory: a build for other architectures compiles an empty kernel without it.
// For instructions of a single architecture (sm_90a), which CompiledCapability
// does not tell apart.
template <typename... Params>
bool HasKernelImage(void (*kernel)(Params...)) {
  cudaFuncAttributes attributes = {};
  if (cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess) {
    return attributes.sharedSizeBytes > 0;
  }
  cudaGetLastError();  // clears the error
  return false;
}

// True if `kernel` can be launched in clusters: its code was compiled with
// them, and `device` has them according to its fields (a test may clear them).
template <typename... Params>
bool HasClusters(void (*kernel)(Params...), const CudaDevice& device) {
  return device.compute_capability >= 90 && CompiledCapability(kernel) >= 90;
}

// Returns the number of clusters of that shape that the device runs at once; 0
// if none. Allows the kernel clusters of more than 8 blocks, which not every
// device of compute capability 9.0 supports.
template <typename... Params>
int MaxActiveClusters(void (*kernel)(Params...), const LaunchConfig& shape) {
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = shape.cluster;
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.attrs = &cluster;
  config.numAttrs = 1;
  int num_clusters = 0;
  if (cudaFuncSetAttribute(kernel,
                           cudaFuncAttributeNonPortableClusterSizeAllowed,
                           1) == cudaSuccess &&
      cudaOccupancyMaxActiveClusters(&num_clusters, kernel, &config) ==
          cudaSuccess) {
    return num_clusters;
  }
  cudaGetLastError();  // clears the error
  return 0;
}

}  // namespace espalier
