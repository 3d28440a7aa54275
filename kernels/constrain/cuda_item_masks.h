// Token masks of items on the device: the children of the states of a step are
// found in the trie, and their bits set, so that the work is in proportion to
// the children. Beyond that masks are cleared, vocab_size / 4 bytes.
//
// Bits equal those of reference::TokenMask and reference::ContinuingMask.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "base/cuda.h"
#include "kernels/constrain/cuda_token_masks.h"

namespace espalier {

// Writes the masks of each job of items. Enqueues on `stream` and returns;
// never allocates, may be captured. REQUIRES: after CudaFindMasks of these
// inputs; `masks` begin at multiples of 16 bytes; items are those of
// CudaItemTables, and have no token or end id from vocab_size on. Errors:
// kInvalidArgument if a size is below 1; kInternal if the launch is refused.
absl::Status CudaMakeItemMasks(const CudaMaskInputs& inputs,
                               const CudaTokenMasks& masks,
                               const CudaDevice& device, cudaStream_t stream);

}  // namespace espalier
