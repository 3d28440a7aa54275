// CudaStepTimes: sums of the times that steps report.
//
// Thread safety: a plain value.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/time/time.h"

namespace espalier {

class CudaStepTimes {
 public:
  // Adds a step that ran from `started_ns` to `ended_ns` on the device's clock.
  // `was_waiting`: it was launched before the last one ended.
  void Add(int64_t started_ns, int64_t ended_ns, bool was_waiting);

  absl::Duration busy() const { return absl::Nanoseconds(busy_ns_); }
  absl::Duration idle() const { return absl::Nanoseconds(idle_ns_); }
  int64_t num_gaps() const { return num_gaps_; }
  // Returns the median of the last kKept gaps; 0 without gaps.
  absl::Duration MedianGap() const;

 private:
  static constexpr int kKept = 4096;

  int64_t busy_ns_ = 0;
  int64_t idle_ns_ = 0;
  int64_t last_ended_ns_ = 0;
  int64_t num_gaps_ = 0;
  std::vector<int64_t> gaps_ns_;  // the last kKept, in a ring
};

}  // namespace espalier
