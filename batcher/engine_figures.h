// EngineFigures: what an engine (engine.h) tells of itself.
#pragma once

#include "absl/time/time.h"
#include "batcher/scheduler.h"

namespace espalier {

// What an engine has done since its construction, and holds now.
struct EngineFigures {
  SchedulerFigures scheduler;
  // Time on the strand: writing plans, and applying results.
  absl::Duration plan_time;
  absl::Duration advance_time;
  // From the start of each plan, or from the end of applying the last result
  // if that was later, to the end of applying its result, summed. What forward,
  // select, plan and advance leave of it is hand-over, which can be negative
  // where plans are written while another step runs.
  absl::Duration step_time;
  // Now.
  int num_waiting = 0;
  int num_running = 0;
  int num_pages_held = 0;
};

}  // namespace espalier
