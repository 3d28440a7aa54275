#include "tests/executor/cuda/failing_launches.h"

#include <cuda_runtime_api.h>

#include <atomic>

namespace {

constexpr int64_t kNever = int64_t{1} << 62;

std::atomic<int64_t> num_good_launches{kNever};

bool Fails() { return num_good_launches.fetch_sub(1) == 0; }

}  // namespace

// Names required by the linker's --wrap; the first two are the runtime's.
extern "C" cudaError_t __real_cudaLaunchKernelExC(
    const cudaLaunchConfig_t* config, const void* kernel, void** arguments);
extern "C" cudaError_t __real_cudaGraphLaunch(cudaGraphExec_t exec,
                                              cudaStream_t stream);
extern "C" cudaError_t __wrap_cudaLaunchKernelExC(
    const cudaLaunchConfig_t* config, const void* kernel, void** arguments) {
  if (Fails()) return cudaErrorLaunchOutOfResources;
  return __real_cudaLaunchKernelExC(config, kernel, arguments);
}
extern "C" cudaError_t __wrap_cudaGraphLaunch(cudaGraphExec_t exec,
                                              cudaStream_t stream) {
  if (Fails()) return cudaErrorLaunchOutOfResources;
  return __real_cudaGraphLaunch(exec, stream);
}

namespace espalier::testing {

void FailLaunch(int64_t num_good) {
  num_good_launches = num_good < 0 ? kNever : num_good;
}

bool HasLaunchFailed() { return num_good_launches < 0; }

}  // namespace espalier::testing
