// Turn: the order in which requests run: a request's place, for good. A request
// of priority p that arrives at step s has its turn at s + p *
// kStepsPerPriority steps: so one that waits moves up by a level every so many
// steps, and nothing waits for ever (ageing, in closed form).
#pragma once

#include <compare>
#include <cstdint>

#include "base/ids.h"

namespace espalier {

struct Turn {
  static constexpr int64_t kStepsPerPriority = 1000;

  static Turn Of(int64_t priority, int64_t step, RequestId id);

  int64_t step = 0;
  RequestId id = {};  // of two that are equal the older one
  friend auto operator<=>(const Turn&, const Turn&) = default;
};

}  // namespace espalier
