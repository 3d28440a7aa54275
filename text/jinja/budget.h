// Budget: what one rendering may cost, so that a hostile template ends in an
// error soon. Costs add up and are never given back: what was made and dropped
// has taken its time, too.
//
// Thread safety: one rendering's own.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "text/jinja/error.h"
#include "text/jinja/limits.h"

namespace espalier::jinja {

// Of expressions and statements that are evaluated within each other, macros'
// calls included. Each takes some hundred bytes of stack.
inline constexpr int kMaxEvaluationDepth = 500;
// Of lists and dictionaries within each other.
inline constexpr int kMaxValueDepth = 100;

class Budget {
 public:
  Budget(const RenderLimits& limits, int64_t input_bytes)
      : steps_(limits.steps + limits.steps_per_input_byte * input_bytes),
        bytes_(limits.bytes + limits.bytes_per_input_byte * input_bytes),
        time_(limits.time) {}

  void TakeSteps(int64_t steps) {
    if (steps > steps_) throw TemplateError::OutOf("takes too many steps");
    steps_ -= steps;
    if (++num_taken_ % kTakenBetweenLooks == 0) LookAtClock();
  }
  void TakeBytes(size_t bytes) {
    if (bytes > static_cast<size_t>(bytes_)) {
      throw TemplateError::OutOf("takes too much memory");
    }
    bytes_ -= static_cast<int64_t>(bytes);
    if (++num_taken_ % kTakenBetweenLooks == 0) LookAtClock();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int64_t kTakenBetweenLooks = 1'000;

  void LookAtClock() const {
    if (Clock::now() - begin_ > time_) {
      throw TemplateError::OutOf(
          Concat("takes more than ", time_.count(), " ms"));
    }
  }

  int64_t steps_;
  int64_t bytes_;
  const std::chrono::milliseconds time_;
  const Clock::time_point begin_ = Clock::now();
  int64_t num_taken_ = 0;
};

}  // namespace espalier::jinja
