// EngineStats: what an engine (engine.h) has done since its construction, and
// holds now, as one value that is consistent in itself. prometheus_text.h
// writes it for those who collect metrics.
//
// Of requests the engine was given: every one waits, runs, is preempted or has
// ended, so num_requests is the sum of these four. Requests that are refused
// before they reach the engine's strand, for a field that is wrong or after a
// shutdown, are not in it.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "batcher/scheduler/scheduler_stats.h"

namespace espalier {

struct EngineStats : SchedulerStats, SchedulerGauges {
  // Time on the strand: writing plans, and applying results.
  absl::Duration plan_time;
  absl::Duration advance_time;
  // From the start of each plan, or from the end of applying the last result
  // if that was later, to the end of applying its result, summed.
  absl::Duration step_time;
  // What forward, select, plan and advance leave of step_time: between threads.
  // Plans that are written while another step runs are in two of these, so it
  // is the most that was ever left.
  absl::Duration hand_over_time;
};

}  // namespace espalier
