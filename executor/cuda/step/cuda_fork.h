// CudaFork: work beside that of a stream, on a second one, in steps and in the
// capture of a graph.
//
//   RETURN_IF_ERROR(fork.Begin(stream, [&](cudaStream_t beside) {
//     return EnqueueMasks(beside);
//   }));
//   const absl::Status forward = EnqueueForward(stream);
//   RETURN_IF_ERROR(fork.Join(stream));
//
// The last kernel of the second stream is a barrier (base/grid_dependency.h).
// Then kernels after Join() start when all work before it is complete. In the
// capture of a graph, Join() makes a programmatic dependency of the next kernel
// on the last one: without a barrier, one that starts early might start before
// that work is complete.
//
// Thread safety: one thread.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/cuda.h"

namespace espalier {

class CudaFork {
 public:
  CudaFork() = default;  // none, to be assigned
  // Errors: as base/cuda.h.
  static absl::StatusOr<CudaFork> Create();

  // Calls enqueue(second stream), which returns an absl::Status, to enqueue
  // work after all that `stream` has so far. Join() must follow, also after an
  // error.
  // Errors: of `enqueue`; as base/cuda.h.
  template <typename Enqueue>
  absl::Status Begin(cudaStream_t stream, const Enqueue& enqueue) {
    RETURN_IF_CUDA_ERROR(cudaEventRecord(begun_.get(), stream));
    RETURN_IF_CUDA_ERROR(cudaStreamWaitEvent(beside_.get(), begun_.get(), 0));
    return enqueue(beside_.get());
  }
  // Lets what `stream` gets from now on wait for the second one.
  // Errors: kInternal if the last kernel of that one is no barrier, but writes
  // what others read early; as base/cuda.h.
  absl::Status Join(cudaStream_t stream);

 private:
  CudaStream beside_;
  CudaEvent begun_;
  CudaEvent ended_;
};

}  // namespace espalier
