// Makes instantiations of CUDA graphs fail as if device memory had run out. The
// test program is linked with --wrap=cudaGraphInstantiate.
#pragma once

namespace espalier::testing {

// The next `count` instantiations of the process fail, on any thread.
void FailGraphInstantiations(int count);

}  // namespace espalier::testing
