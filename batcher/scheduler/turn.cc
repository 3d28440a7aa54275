#include "batcher/scheduler/turn.h"

#include <algorithm>
#include <limits>

namespace espalier {

Turn Turn::Of(int64_t priority, int64_t step, RequestId id) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max() / 2;
  constexpr int64_t kMaxPriority = kMax / kStepsPerPriority;
  priority = std::clamp(priority, -kMaxPriority, kMaxPriority);
  return {std::min(step, kMax) + priority * kStepsPerPriority, id};
}

}  // namespace espalier
