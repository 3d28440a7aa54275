// CompileBudget: bounds the work and memory of compiling a language. Work is
// counted in steps, not in time, so the same input always has the same outcome.
//
// Thread safety: none; one compilation's own.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "base/status.h"

namespace espalier {

struct CompileLimits {
  int64_t max_states = 262'144;
  int64_t max_table_bytes = int64_t{64} << 20;
  // Bounds time and memory together: each operation takes steps in proportion
  // to both. All of them are 0.1 to 0.5 s of a core, and at most 200 MB.
  int64_t max_steps = 50'000'000;
};

class CompileBudget {
 public:
  explicit CompileBudget(const CompileLimits& limits = {})
      : limits_(limits), steps_left_(limits.max_steps) {}

  const CompileLimits& limits() const { return limits_; }

  // Takes `steps`.
  // Errors: kInvalidArgument with the limit if fewer are left.
  absl::Status Take(int64_t steps) {
    steps_left_ -= steps;
    if (steps_left_ >= 0) return absl::OkStatus();
    is_exceeded_ = true;
    return InvalidArgument("it needs more than ", limits_.max_steps,
                           " steps to compile, the limit");
  }
  int64_t steps_left() const { return steps_left_; }
  // Leaves at most `steps` for what follows.
  void Restrict(int64_t steps) { steps_left_ = std::min(steps_left_, steps); }
  // Sets the steps left, and clears is_exceeded().
  void Renew(int64_t steps) {
    steps_left_ = steps;
    is_exceeded_ = false;
  }
  // Errors: kInvalidArgument with the limit if there are too many states.
  absl::Status CheckStates(int64_t num_states) {
    most_.states = std::max(most_.states, num_states);
    if (num_states <= limits_.max_states) return absl::OkStatus();
    is_exceeded_ = true;
    return InvalidArgument("it needs more than ", limits_.max_states,
                           " states, the limit");
  }
  // As CheckStates, of the bytes of a table.
  absl::Status CheckTable(int64_t num_bytes) {
    most_.table_bytes = std::max(most_.table_bytes, num_bytes);
    if (num_bytes <= limits_.max_table_bytes) return absl::OkStatus();
    is_exceeded_ = true;
    return InvalidArgument("it needs a table of ", num_bytes,
                           " bytes, the limit is ", limits_.max_table_bytes);
  }
  // True if one of these was an error.
  bool is_exceeded() const { return is_exceeded_; }

  // Steps that were taken, and the most states and bytes that were checked.
  struct Work {
    int64_t steps = 0;
    int64_t states = 0;
    int64_t table_bytes = 0;
  };
  // REQUIRES: Restrict and Renew were not called.
  Work work() const {
    return {limits_.max_steps - steps_left_, most_.states, most_.table_bytes};
  }
  // Takes and checks what `work` records.
  absl::Status Repeat(const Work& work) {
    RETURN_IF_ERROR(Take(work.steps));
    RETURN_IF_ERROR(CheckStates(work.states));
    return CheckTable(work.table_bytes);
  }

 private:
  CompileLimits limits_;
  int64_t steps_left_;
  bool is_exceeded_ = false;
  Work most_;
};

}  // namespace espalier
