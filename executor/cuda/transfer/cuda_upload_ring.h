// CudaUploadRing: pinned memory through which large arrays of the host get to
// the device. A copy from memory that is not pinned goes through the driver's
// own, piece by piece, and nothing else is enqueued meanwhile; here a piece
// waits only for the one that had its place before.
//
//   RETURN_IF_ERROR(ring.Send(values, on_device, stream));  // values were read
//
// The memory is taken when it is first used: pinning it stops the device, and
// few steps send that much.
//
// Thread safety: as the stream.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "base/cuda_resources.h"

namespace espalier {

class CudaUploadRing {
 public:
  // Enqueues copies of `values` to `to`, in device memory. May wait for the
  // stream; `values` may go when it returns.
  // Errors: kResourceExhausted; as base/cuda.h.
  absl::Status Send(std::span<const float> values, float* to,
                    cudaStream_t stream);

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
