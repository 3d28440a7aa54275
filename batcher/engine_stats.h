// EngineStats: counters of an engine (engine.h) since its construction, and its
// present state, as one consistent value. prometheus_text.h formats it for
// metrics collectors.
//
// Requests: each one waits, runs, is preempted or has ended, so num_requests is
// the sum of these four. Requests refused before they reach the engine's
// strand, because of an invalid field or a shutdown, are not counted.
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
  // Dispatch overhead: step_time minus forward, select, draft, plan and advance
  // time. Plans written while another step runs are counted in two of these, so
  // this is the largest value of the difference so far.
  absl::Duration hand_over_time;
};

}  // namespace espalier
