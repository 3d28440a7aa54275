// Launching kernels, each allowed to start before the one before it in the
// stream has ended (programmatic dependent launch, compute capability 9.0; an
// ordinary launch below that). What a kernel does before WaitForPrevious()
// overlaps the previous kernel's end, so it may touch only what no kernel in
// flight writes: weights, its own shared memory.
//
// The rule that keeps chains safe: every thread of every kernel of ours calls
// WaitForPrevious() before its first access to anything that changes, also if
// it has nothing to do; then all earlier kernels have completed, not just the
// last.
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
  cudaLaunchAttribute early_start = {};
  early_start.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early_start.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &early_start;
  config.numAttrs = 1;
  return CudaStatus(
      cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...),
      "cudaLaunchKernelEx");
}

}  // namespace espalier
