// GPU code run on the host, up to its launches: instead of devices there is a
// list of launches, and memory that no kernel reads. All work completes as soon
// as it is enqueued. Pinned memory is real, and graphs are not supported. A
// test program that uses it is linked by espalier_cuda_dry_run_test, with
// --wrap for the functions of the CUDA runtime that cuda_dry_run.cc replaces.
#pragma once

#include <cuda_runtime_api.h>

#include <set>
#include <vector>

namespace espalier::testing {

struct DryLaunch {
  dim3 grid = {1};
  bool starts_early = false;  // programmatic stream serialization
  int cluster = 1;            // blocks
};

// Begins a dry run: what kernels are said to be compiled for, __CUDA_ARCH__ /
// 10. Returns a stream that no run before had. REQUIRES: all runs of a thread
// have the same capability, which its first launch of a kernel asks for.
cudaStream_t BeginDryRun(int capability);

// Returns the launches since the last call.
std::vector<DryLaunch> TakeDryLaunches();

// One call of the runtime fails with `error`, after `num_good` that do not, of
// those that allocate, copy, set or launch something, or that record or await
// an event; on any thread. Replaces what was said before; a negative `num_good`
// takes it back.
void FailDryCall(int num_good, cudaError_t error);
// True if the call has failed.
bool HasDryCallFailed();

// The devices that were the calling thread's current one where something was
// allocated, freed, created, destroyed or launched since the last call.
std::set<int> TakeDryDevices();

}  // namespace espalier::testing
