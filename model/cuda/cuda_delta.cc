#include "model/cuda/cuda_delta.h"

#include <algorithm>

namespace espalier {
namespace {

// A warp writes a segment, a word a lane: two rounds of it keep the largest
// deltas parallel, and the smallest are one segment.
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

void CudaDelta::Clear() {
  segments_.clear();
  payload_.clear();
}

}  // namespace espalier
