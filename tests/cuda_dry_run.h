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

// Begins a dry run of kernels compiled for `capability`, __CUDA_ARCH__ / 10.
// Returns a new stream.
// REQUIRES: all runs of a thread have the same capability, which its first
// launch of a kernel reads.
cudaStream_t BeginDryRun(int capability);

// Returns the launches since the last call.
std::vector<DryLaunch> TakeDryLaunches();

// Makes one call of the runtime fail with `error`, after `num_good` successful
// ones. Counts calls that allocate, copy, set or launch, or that record or wait
// for an event, on any thread. Replaces an earlier setting; a negative
// `num_good` removes it.
void FailDryCall(int num_good, cudaError_t error);
// True if the call has failed.
bool HasDryCallFailed();

// The devices that were the calling thread's current one where something was
// allocated, freed, created, destroyed or launched since the last call.
std::set<int> TakeDryDevices();

}  // namespace espalier::testing
