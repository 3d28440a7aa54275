#include "executor/cuda/transfer/cuda_delta.h"

#include <algorithm>

namespace espalier {
namespace {

// A warp writes a segment, one word per lane and round. Two rounds per segment
// keep large deltas parallel and small ones in one segment.
constexpr int kMaxSegment = 64;

}  // namespace

CudaDelta::Shared CudaDelta::Share(std::span<const int> words) {
  const Shared shared = {static_cast<int>(payload_.size()),
                         static_cast<int>(words.size())};
  payload_.insert(payload_.end(), words.begin(), words.end());
  return shared;
}

void CudaDelta::Put(const int* target, Shared words) {
  const int first = static_cast<int>(target - words_);
  for (int done = 0; done < words.count; done += kMaxSegment) {
    segments_.push_back({first + done, words.source + done,
                         std::min(kMaxSegment, words.count - done)});
  }
}

size_t CopyPiece(const CudaDelta& delta, size_t first,
                 std::span<CudaStagedWrite> segments, std::span<int> payload) {
  const std::span<const CudaStagedWrite> all = delta.segments();
  const std::span<const int> words = delta.payload();
  if (first == 0 && all.size() <= segments.size() &&
      words.size() <= payload.size()) {
    std::ranges::copy(all, segments.begin());
    std::ranges::copy(words, payload.begin());
    return all.size();
  }
  // Words that segments share are copied for each.
  const size_t most = std::min(all.size() - first, segments.size());
  size_t count = 0, used = 0;
  for (; count < most; ++count, used += segments[count - 1].count) {
    CudaStagedWrite segment = all[first + count];
    if (used + segment.count > payload.size()) break;
    std::ranges::copy(words.subspan(segment.source, segment.count),
                      payload.begin() + used);
    segment.source = static_cast<int>(used);
    segments[count] = segment;
  }
  return count;
}

void CudaDelta::Clear() {
  segments_.clear();
  payload_.clear();
}

}  // namespace espalier
