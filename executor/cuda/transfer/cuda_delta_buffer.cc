#include "executor/cuda/transfer/cuda_delta_buffer.h"

#include <algorithm>
#include <span>

namespace espalier {

absl::StatusOr<CudaDeltaBuffer> CudaDeltaBuffer::Create(size_t num_segments,
                                                        size_t num_words) {
  CudaDeltaBuffer buffer;
  ASSIGN_OR_RETURN(buffer.segments_,
                   PinnedBuffer<CudaStagedWrite>::Create(num_segments));
  ASSIGN_OR_RETURN(buffer.payload_, PinnedBuffer<int>::Create(num_words));
  return buffer;
}

absl::Status CudaDeltaBuffer::Send(const CudaDelta& delta, int* words,
                                   CudaStepClock* clock, cudaStream_t stream) {
  const std::span segments(segments_.data(), segments_.size());
  const std::span payload(payload_.data(), payload_.size());
  for (size_t sent = 0; sent < delta.segments().size();) {
    if (sent > 0) RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream));
    const size_t count = CopyPiece(delta, sent, segments, payload);
    RETURN_IF_ERROR(
        CudaApplyStagedWrites(segments.data(), static_cast<int>(count),
                              payload.data(), words, clock, stream));
    sent += count;
  }
  return absl::OkStatus();
}

}  // namespace espalier
