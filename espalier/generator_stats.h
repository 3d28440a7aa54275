// GeneratorStats: what a generator (generator.h) tells whoever operates it.
#pragma once

#include <cstdint>

#include "batcher/engine_stats.h"

namespace espalier {

// Those of its engine, and of the calls that are open. Requests given to
// Generator::engine() are in all but num_open and num_refused.
struct GeneratorStats : EngineStats {
  // Of max_running + max_waiting that may be: those that wait, run or are
  // preempted, and what waits for its callback.
  int64_t num_open = 0;
  // Since the start: there were as many open as may be.
  int64_t num_refused = 0;
};

}  // namespace espalier
