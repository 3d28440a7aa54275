// CudaDeltaBuffer: pinned memory through which a CudaDelta gets to the device,
// which reads it in place. It is taken once: pinning memory while steps run
// stops them. A delta that is larger, of hundreds of thousands of words, goes
// in pieces, each when the device has read the one before; steps that already
// run end first.
//
// Thread safety: as the executor's stream.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/cuda.h"
#include "executor/cuda/transfer/cuda_delta.h"
#include "kernels/resident/cuda_resident.h"

namespace espalier {

class CudaDeltaBuffer {
 public:
  // Room for so much at a time: by default a batch of some thousand rows, and
  // the tables and edits of requests that join it, 2.8 MB.
  // Errors: kResourceExhausted.
  static absl::StatusOr<CudaDeltaBuffer> Create(size_t num_segments = 1 << 16,
                                                size_t num_words = 1 << 19);

  // Enqueues what writes the delta to `words`. The buffer is the device's until
  // that has run.
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
