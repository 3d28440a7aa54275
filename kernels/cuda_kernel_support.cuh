// What the device at hand can do with a kernel: not every architecture has its
// instructions, and not every device has room for its clusters.
#pragma once

#include <cuda_runtime.h>

#include "base/cuda_launch.cuh"

namespace espalier {

// Whether `kernel`, which has static shared memory, is there on this device. A
// build for other architectures leaves it empty, and then it has none. For what
// a capability does not say, which CompiledCapability says: instructions of
// one architecture alone (sm_90a).
template <typename... Params>
bool HasKernelImage(void (*kernel)(Params...)) {
  cudaFuncAttributes attributes = {};
  if (cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess) {
    return attributes.sharedSizeBytes > 0;
  }
  cudaGetLastError();  // which clears it
  return false;
}

// Whether `kernel` can be launched in clusters: what was compiled of it has
// them, and so has `device`, as far as it is said (a test may say that it has
// none).
template <typename... Params>
bool HasClusters(void (*kernel)(Params...), const CudaDevice& device) {
  return device.compute_capability >= 90 && CompiledCapability(kernel) >= 90;
}

// How many clusters of that shape the device runs at once; 0 if none. Lets the
// kernel have clusters of more than 8 blocks, which is what every device of
// compute capability 9.0 allows.
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
  cudaGetLastError();  // which clears it
  return 0;
}

}  // namespace espalier
