// Checks of Launch() (base/cuda_launch.cuh) before a launch. Plain C++. State
// is thread-local, because each stream is used by one thread.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "base/grid_dependency.h"

namespace espalier::cuda_internal {

// Implements espalier::CompiledCapability (base/cuda_launch.cuh).
int CompiledCapability(const void* kernel);

// Checks that this kernel may be the next one on `stream`, and records it. The
// default stream is not checked, because synchronous copies order it too.
// Errors: kInternal as Launch.
absl::Status CheckLaunch(cudaStream_t stream, GridDependency dependency,
                         int cluster, int capability);

// Clears the state of `stream`. A new stream may have the handle of an old one.
void ForgetStream(cudaStream_t stream);

}  // namespace espalier::cuda_internal
