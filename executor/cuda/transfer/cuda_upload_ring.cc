#include "executor/cuda/transfer/cuda_upload_ring.h"

#include <algorithm>

#include "base/cuda.h"
#include "base/status.h"

namespace espalier {
namespace {

// Eight rows of 128,256 logits.
constexpr size_t kPieceFloats = size_t{1} << 20;

}  // namespace

absl::Status CudaUploadRing::Reserve() {
  for (Piece& piece : pieces_) {
    if (piece.memory.size() > 0) continue;
    ASSIGN_OR_RETURN(piece.was_read, CudaEvent::Create());
    ASSIGN_OR_RETURN(piece.memory, PinnedBuffer<float>::Create(kPieceFloats));
  }
  return absl::OkStatus();
}

absl::Status CudaUploadRing::Send(std::span<const float> values, float* to,
                                  cudaStream_t stream) {
  RETURN_IF_ERROR(Reserve());
  while (!values.empty()) {
    Piece& piece = pieces_[num_sent_++ % pieces_.size()];
    const size_t count = std::min(values.size(), kPieceFloats);
    // This returns at once if the event was never recorded.
    RETURN_IF_CUDA_ERROR(cudaEventSynchronize(piece.was_read.get()));
    std::copy_n(values.begin(), count, piece.memory.data());
    RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(to, piece.memory.data(),
                                         count * sizeof(float),
                                         cudaMemcpyHostToDevice, stream));
    RETURN_IF_CUDA_ERROR(cudaEventRecord(piece.was_read.get(), stream));
    values = values.subspan(count);
    to += count;
  }
  return absl::OkStatus();
}

}  // namespace espalier
