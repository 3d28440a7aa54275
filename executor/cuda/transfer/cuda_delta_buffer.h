// CudaDeltaBuffer: pinned memory that passes a CudaDelta to the device, which
// reads it in place. It is allocated once, because pinning memory stalls
// running steps. A larger delta, of hundreds of thousands of words, is sent in
// pieces. Each piece waits until the device has read the one before, and thus
// for running steps.
//
// Thread safety: as the executor's stream.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/cuda.h"
#include "base/cuda_pinned_memory.h"
#include "executor/cuda/transfer/cuda_delta.h"
#include "kernels/resident/cuda_resident.h"

namespace espalier {

class CudaDeltaBuffer {
 public:
  // The default capacity, 2.8 MB, fits a batch of some thousand rows with the
  // tables and edits of requests that join it.
  // Errors: kResourceExhausted.
  static absl::StatusOr<CudaDeltaBuffer> Create(size_t num_segments = 1 << 16,
                                                size_t num_words = 1 << 19);

  // Enqueues kernels that write the delta to `words`. The buffer must not be
  // used again until they have run.
  absl::Status Send(const CudaDelta& delta, int* words, CudaStepClock* clock,
                    cudaStream_t stream);

  size_t num_bytes() const {
    return segments_.size_bytes() + payload_.size_bytes();
  }

 private:
  PinnedBuffer<CudaStagedWrite> segments_;
  PinnedBuffer<int> payload_;
};

}  // namespace espalier
