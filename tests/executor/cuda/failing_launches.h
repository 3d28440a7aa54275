// Makes a launch of a kernel or of a CUDA graph fail, which then does not run.
// The test program is linked with --wrap=cudaLaunchKernelExC and
// --wrap=cudaGraphLaunch.
#pragma once

#include <cstdint>

namespace espalier::testing {

// One launch of the process fails, after `num_good` that do not, on any thread;
// negative: none does.
void FailLaunch(int64_t num_good);
// True if the launch has failed.
bool HasLaunchFailed();

}  // namespace espalier::testing
