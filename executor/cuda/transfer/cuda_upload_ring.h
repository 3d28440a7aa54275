// CudaUploadRing: a ring of pinned buffers for uploads of large host arrays.
// The driver copies pageable memory through its own staging buffer, and the
// calling thread can enqueue nothing meanwhile. Here an array is sent in
// pieces, and the thread waits only for the earlier piece in the same buffer.
//
//   RETURN_IF_ERROR(ring.Send(values, on_device, stream));
//   values.clear();  // they have been read
//
// The memory is allocated on first use, because pinning stalls the device and
// few steps send any array.
//
// Thread safety: one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "base/cuda_pinned_memory.h"
#include "base/cuda_resources.h"

namespace espalier {

class CudaUploadRing {
 public:
  // Enqueues copies of `values` to `to`, in device memory. Waits for earlier
  // copies on the stream if all buffers are in use. `values` is not read after
  // the call.
  // Errors: kResourceExhausted if no memory can be pinned; as base/cuda.h.
  absl::Status Send(std::span<const float> values, float* to,
                    cudaStream_t stream);

  // Returns the bytes of pinned memory: 0 before the first Send.
  // Returns the bytes of pinned host memory; 0 before the first Send.
  size_t num_bytes() const {
    size_t bytes = 0;
    for (const Piece& piece : pieces_) bytes += piece.memory.size_bytes();
    return bytes;
  }

 private:
  struct Piece {
    PinnedBuffer<float> memory;
    CudaEvent was_read;
  };
  absl::Status Reserve();

  std::array<Piece, 4> pieces_;
  size_t num_sent_ = 0;  // pieces
};

}  // namespace espalier
