// TimedStats: the counters of a scheduler, and the time that its caller set
// last. Each part of a scheduler has a pointer to the same one. It reads no
// clock.
#pragma once

#include <cstdint>

#include "batcher/scheduler/scheduler_stats.h"

namespace espalier {

struct TimedStats {
  SchedulerStats stats;
  int64_t now = 0;  // Scheduler::SetTime
};

}  // namespace espalier
