#include "executor/cuda/step/cuda_fork.h"

#include "base/cuda_launch.h"

namespace espalier {
namespace {

// Creates an event without time stamp, which is faster on the device.
absl::StatusOr<CudaEvent> MakeForkEvent() {
  cudaEvent_t event = nullptr;
  RETURN_IF_CUDA_ERROR(
      cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return CudaEvent(event);
}

}  // namespace

absl::StatusOr<CudaFork> CudaFork::Create() {
  CudaFork fork;
  ASSIGN_OR_RETURN(fork.beside_, CudaStream::Create());
  ASSIGN_OR_RETURN(fork.begun_, MakeForkEvent());
  ASSIGN_OR_RETURN(fork.ended_, MakeForkEvent());
  return fork;
}

absl::Status CudaFork::Join(cudaStream_t stream) {
  RETURN_IF_CUDA_ERROR(cudaEventRecord(ended_.get(), beside_.get()));
  RETURN_IF_CUDA_ERROR(cudaStreamWaitEvent(stream, ended_.get(), 0));
  // As if the next kernel of `stream` came here.
  return cuda_internal::CheckLaunch(beside_.get(), GridDependency::kReadsEarly,
                                    /*cluster=*/1, /*capability=*/0);
}

}  // namespace espalier
