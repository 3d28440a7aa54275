// Launching kernels, each allowed to start before the one before it in the
// stream has ended (programmatic dependent launch, compute capability 9.0; an
// ordinary launch below that). What a kernel does before WaitForPrevious()
// overlaps the ends of earlier kernels, so it may touch only what none of those
// in flight writes: weights, its own shared memory, and what was complete at
// the last fence.
//
// The rule that keeps chains safe: every thread of every kernel of ours calls
// WaitForPrevious(), also if it has nothing to do, and before its first access
// to anything else; then all earlier kernels have completed, not just the last.
//
// A fence is a kernel that calls LetNextStart() only after WaitForPrevious():
// when any later kernel starts, all that was enqueued before the fence has
// completed. CudaEmbed is one, so the kernels of a forward pass and of
// selection read work lists, positions, tables and older keys and values ahead
// of their waits. A kernel put between the fence and such readers must not
// write what they read.
//
//   __global__ void Scale(float* x, int n) {
//     LetNextStart();       // its prologue may run beside us
//     WaitForPrevious();    // x is complete from here on
//     ...
//   }
//   RETURN_IF_ERROR(Launch(Scale, {.grid = 8, .block = 256}, stream, x, n));
//
// Below compute capability 9.0 both calls are nothing.
#pragma once

#include <cuda_runtime.h>

#include "base/cuda.h"

namespace espalier {

// All threads: the previous kernels of the stream are complete, and what they
// wrote is visible.
__device__ __forceinline__ void WaitForPrevious() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Once every block has called it (or ended), the next kernel may start its
// prologue. Promises nothing about memory.
__device__ __forceinline__ void LetNextStart() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" :::);
#endif
}

struct LaunchShape {
  dim3 grid = {1};
  dim3 block = {1};
  size_t shared_bytes = 0;  // dynamic; above 48 KiB see AllowSharedBytes
  int cluster = 1;  // blocks along x that share a cluster (9.0 and above)
};

// Lets `kernel` have up to `bytes` of dynamic shared memory. Once a kernel.
template <typename... Params>
absl::Status AllowSharedBytes(void (*kernel)(Params...), size_t bytes) {
  return CudaStatus(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(bytes)),
      "cudaFuncSetAttribute");
}

// Enqueues `kernel` and returns.
// Errors: kInternal if the launch is refused.
template <typename... Params, typename... Args>
absl::Status Launch(void (*kernel)(Params...), const LaunchShape& shape,
                    cudaStream_t stream, Args&&... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = shape.cluster;
  attributes[1].val.clusterDim.y = 1;
  attributes[1].val.clusterDim.z = 1;
  config.attrs = attributes;
  config.numAttrs = shape.cluster > 1 ? 2 : 1;
  return CudaStatus(
      cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...),
      "cudaLaunchKernelEx");
}

}  // namespace espalier
