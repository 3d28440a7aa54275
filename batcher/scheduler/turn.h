// Turn: the fixed place of a request in the order of running. A request of
// priority p that arrives at step s has its turn at s + p * kStepsPerPriority.
// So a waiting request moves up one priority every kStepsPerPriority steps, and
// none waits for ever (ageing, in closed form).
#pragma once

#include <compare>
#include <cstdint>

#include "base/ids.h"

namespace espalier {

struct Turn {
  static constexpr int64_t kStepsPerPriority = 1000;

  static Turn Of(int64_t priority, int64_t step, RequestId id);

  int64_t step = 0;
  RequestId id = {};  // ties go to the older request
  friend auto operator<=>(const Turn&, const Turn&) = default;
};

}  // namespace espalier
