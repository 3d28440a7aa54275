// Stopwatch: elapsed time on the steady clock, for statistics.
#pragma once

#include <chrono>

#include "absl/time/time.h"

namespace espalier {

class Stopwatch {
 public:
  absl::Duration Elapsed() const {
    return absl::FromChrono(std::chrono::steady_clock::now() - start_);
  }
  // Returns the time since construction or the last lap.
  absl::Duration Lap() {
    const absl::Duration elapsed = Elapsed();
    start_ = std::chrono::steady_clock::now();
    return elapsed;
  }

 private:
  std::chrono::steady_clock::time_point start_ =
      std::chrono::steady_clock::now();
};

}  // namespace espalier
