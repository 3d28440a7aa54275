#include "tests/executor/cuda/failing_graphs.h"

#include <cuda_runtime_api.h>

#include <atomic>

namespace {

std::atomic<int> num_to_fail = 0;

}  // namespace

// Names required by the linker's --wrap; the first is the runtime's.
extern "C" cudaError_t __real_cudaGraphInstantiate(cudaGraphExec_t* exec,
                                                   cudaGraph_t graph,
                                                   unsigned long long flags);
extern "C" cudaError_t __wrap_cudaGraphInstantiate(cudaGraphExec_t* exec,
                                                   cudaGraph_t graph,
                                                   unsigned long long flags) {
  if (num_to_fail > 0) {
    --num_to_fail;
    return cudaErrorMemoryAllocation;
  }
  return __real_cudaGraphInstantiate(exec, graph, flags);
}

namespace espalier::testing {

void FailGraphInstantiations(int count) { num_to_fail = count; }

}  // namespace espalier::testing
