// Budget: limits on the cost of one rendering, so that a hostile template soon
// ends in an error. Costs add up; memory that is freed is not credited, as it
// has taken time.
//
// Thread safety: one rendering's own.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "text/jinja/limits.h"

namespace espalier::jinja {

// Nesting of expressions and statements during evaluation, macros' calls
// included. Each level takes some hundred bytes of stack.
inline constexpr int kMaxEvaluationDepth = 500;
// Nesting of lists and dictionaries.
inline constexpr int kMaxValueDepth = 100;

class Budget {
 public:
  using Clock = std::chrono::steady_clock;

  // Bytes between two looks at the clock; a step counts as kBytesOfStep.
  static constexpr int64_t kWorkBetweenLooks = 64 << 10;
  static constexpr int64_t kBytesOfStep = 64;

  // `now` is the clock.
  Budget(const RenderLimits& limits, int64_t input_bytes,
         Clock::time_point (*now)() = &Clock::now)
      : input_bytes_(input_bytes),
        max_steps_(
            std::min(limits.steps + limits.steps_per_input_byte * input_bytes,
                     limits.max_steps)),
        max_bytes_(
            std::min(limits.bytes + limits.bytes_per_input_byte * input_bytes,
                     limits.max_bytes)),
        time_(limits.time),
        now_(now),
        begin_(now()) {}

  void TakeSteps(int64_t steps) {
    if (steps > max_steps_ - steps_) FailSteps();
    steps_ += steps;
    CountWork(steps * kBytesOfStep);
  }
  void TakeBytes(size_t bytes) {
    if (bytes > static_cast<size_t>(max_bytes_ - bytes_)) FailBytes();
    bytes_ += static_cast<int64_t>(bytes);
    CountWork(static_cast<int64_t>(bytes));
  }

  // Throw the error of an exceeded limit.
  [[noreturn]] void FailSteps() const;
  [[noreturn]] void FailBytes() const;

  // Totals so far.
  int64_t steps() const { return steps_; }
  int64_t bytes() const { return bytes_; }

 private:
  void CountWork(int64_t bytes) {
    work_ += bytes;
    if (work_ >= kWorkBetweenLooks) LookAtClock();
  }
  void LookAtClock();

  const int64_t input_bytes_;
  const int64_t max_steps_;
  const int64_t max_bytes_;
  const std::chrono::milliseconds time_;
  Clock::time_point (*const now_)();
  const Clock::time_point begin_;
  int64_t steps_ = 0;
  int64_t bytes_ = 0;
  int64_t work_ = 0;  // since the clock was looked at
};

}  // namespace espalier::jinja
