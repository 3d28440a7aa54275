// What Launch (base/cuda_launch.cuh) asks before it launches. Plain C++; state
// is kept by thread: a stream's kernels come from one thread.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "base/grid_dependency.h"

namespace espalier::cuda_internal {

// As espalier::CompiledCapability (base/cuda_launch.cuh).
int CompiledCapability(const void* kernel);

// Whether the next kernel of `stream` may be this one, and notes it. Not of the
// default stream, which copies of the host order, unseen from here.
// Errors: kInternal as Launch.
absl::Status CheckLaunch(cudaStream_t stream, GridDependency dependency,
                         int cluster, int capability);

// A new stream has a handle that an old one may have had: its order begins.
void ForgetStream(cudaStream_t stream);

}  // namespace espalier::cuda_internal
