#include "executor/cuda/cuda_step_times.h"

#include <algorithm>

namespace espalier {

void CudaStepTimes::Add(int64_t started_ns, int64_t ended_ns,
                        bool was_waiting) {
  busy_ns_ += ended_ns - started_ns;
  if (was_waiting && last_ended_ns_ != 0) {
    const int64_t gap = std::max<int64_t>(started_ns - last_ended_ns_, 0);
    idle_ns_ += gap;
    if (num_gaps_ < kKept) {
      gaps_ns_.push_back(gap);
    } else {
      gaps_ns_[num_gaps_ % kKept] = gap;
    }
    ++num_gaps_;
  }
  last_ended_ns_ = ended_ns;
}

absl::Duration CudaStepTimes::MedianGap() const {
  if (gaps_ns_.empty()) return absl::ZeroDuration();
  std::vector<int64_t> gaps = gaps_ns_;
  const auto middle = gaps.begin() + gaps.size() / 2;
  std::nth_element(gaps.begin(), middle, gaps.end());
  return absl::Nanoseconds(*middle);
}

}  // namespace espalier
