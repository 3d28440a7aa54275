// Launches kernels with programmatic dependent launch (PDL): each may start
// before the previous one in the stream has ended. A kernel that was not
// compiled for PDL is launched ordinarily. base/grid_dependency.h has the
// ordering rules and the kinds of dependency of a kernel.
//
//   __global__ void Scale(float* x, int n) {
//     LaunchDependents();      // the next kernel's prologue may run beside us
//     GridDependencyWait();    // x is complete from here on
//     ...
//   }
//   RETURN_IF_ERROR(Launch(Scale, {.grid = 8, .block = 256}, stream, x, n));
//
// An earlier kernel may write its output during the lifetime of a kernel that
// starts early. That memory must therefore not be read with ld.global.nc, which
// __ldg and const __restrict__ parameters use, not even after the wait.
//
// The compiled code decides whether a kernel can wait, not the device: both
// calls are empty below compute capability 9.0, and a device of 9.0 or more
// runs such code too, if the driver compiles PTX of compute_80. Launch()
// queries the code's capability (CompiledCapability), and lets a kernel start
// early only if it waits.
#pragma once

#include <cuda_runtime.h>

#include "base/cuda.h"
#include "base/cuda_launch.h"
#include "base/grid_dependency.h"

namespace espalier {

// Waits until all previous kernels of the stream are complete and their writes
// visible (griddepcontrol.wait). All threads call it.
__device__ __forceinline__ void GridDependencyWait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel start its prologue, once every block has called this or
// ended (griddepcontrol.launch_dependents). Does not order memory accesses.
__device__ __forceinline__ void LaunchDependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" :::);
#endif
}

struct LaunchConfig {
  dim3 grid = {1};
  dim3 block = {1};
  size_t shared_bytes =
      0;  // dynamic; above 48 KiB see SetMaxDynamicSharedMemory
  // Blocks along x that share a cluster. More than 1: only of a kernel whose
  // CompiledCapability is 90 or more.
  int cluster = 1;
  GridDependency dependency = GridDependency::kWaitsFirst;
};

// The compute capability that the code of `kernel` was compiled for which the
// calling thread's device runs, __CUDA_ARCH__ / 10: 80 where that is PTX of
// compute_80, whatever the device. 0 if the device has no code for it. Asks the
// runtime once a thread, device and kernel.
template <typename... Params>
int CompiledCapability(void (*kernel)(Params...)) {
  return cuda_internal::CompiledCapability(
      reinterpret_cast<const void*>(kernel));
}

// Lets `kernel` have up to `bytes` of dynamic shared memory. Once a kernel.
template <typename... Params>
absl::Status SetMaxDynamicSharedMemory(void (*kernel)(Params...),
                                       size_t bytes) {
  return CudaStatus(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(bytes)),
      "cudaFuncSetAttribute");
}

// Enqueues `kernel` and returns. Launches of a stream come from one thread.
// Errors: kInternal if the launch is refused, if it would read early what an
// earlier kernel may still be writing (GridDependencyOrder), or if it is of
// clusters and compiled without them.
template <typename... Params, typename... Args>
absl::Status Launch(void (*kernel)(Params...), const LaunchConfig& shape,
                    cudaStream_t stream, Args&&... args) {
  const int capability = CompiledCapability(kernel);
  RETURN_IF_ERROR(cuda_internal::CheckLaunch(stream, shape.dependency,
                                             shape.cluster, capability));
  cudaLaunchAttribute attributes[2] = {};
  int num_attributes = 0;
  if (capability >= 90) {
    cudaLaunchAttribute& early = attributes[num_attributes++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[num_attributes++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = shape.cluster;
    cluster.val.clusterDim.y = 1;
    cluster.val.clusterDim.z = 1;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = num_attributes;
  return CudaStatus(
      cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...),
      "cudaLaunchKernelEx");
}

}  // namespace espalier
