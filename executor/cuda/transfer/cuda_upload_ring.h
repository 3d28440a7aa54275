// CudaUploadRing: a ring of pinned buffers for uploads of large host arrays.
// The driver copies pageable memory through its own staging buffer, and the
// calling thread can enqueue nothing meanwhile. Here a piece waits only for the
// earlier piece in the same buffer.
//
//   RETURN_IF_ERROR(ring.Send(values, on_device, stream));  // values were read
//
// The memory is allocated on first use, because pinning stalls the device and
// few steps upload that much.
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
  // stream. `values` is not read after the call.
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
