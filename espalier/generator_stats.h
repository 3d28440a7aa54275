// GeneratorStats: statistics of a generator (generator.h) for its operator.
#pragma once

#include <cstdint>

#include "batcher/engine_stats.h"

namespace espalier {

// The engine's statistics, and the counts of open calls. Requests given to
// Generator::engine() count in all but num_open and num_refused.
struct GeneratorStats : EngineStats {
  // Open requests, at most max_running + max_waiting: waiting, running,
  // preempted, or with a callback still to run.
  int64_t num_open = 0;
  // Requests refused since the start because num_open was at its limit.
  int64_t num_refused = 0;
};

}  // namespace espalier
