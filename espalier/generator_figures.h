// GeneratorFigures: what a generator (generator.h) tells whoever operates it.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace espalier {

// Requests given to Generator::engine() are in all figures but num_open and
// num_refused.
struct GeneratorFigures {
  // Now: requests that run, and that wait until others end. One that was put
  // away to make room is in neither until it resumes.
  int num_running = 0;
  int num_away = 0;  // preempted, in neither of the others; they resume
  int num_waiting = 0;
  // Of max_running + max_waiting that may be: those two, and what waits for its
  // callback.
  int64_t num_open = 0;
  int num_pages_held = 0;  // by requests
  int num_pages_idle = 0;  // by the prefix cache alone: taken back when needed
  int num_pages = 0;       // that there are

  // Since the start. Refused: there were as many open as may be.
  int64_t num_refused = 0;
  int64_t num_steps = 0;
  int64_t num_prompt_tokens = 0;     // fed
  int64_t num_cached_tokens = 0;     // of prompts, shared instead of fed
  int64_t num_generated_tokens = 0;  // returned
  int64_t num_preemptions = 0;       // requests put away to make room
  int64_t peak_pages = 0;            // held by requests at most

  // Time by phase, since the start: the model, the choice among its scores,
  // the scheduler before a step and after it. Plans are also written while the
  // step before runs.
  absl::Duration forward_time;
  absl::Duration select_time;
  absl::Duration plan_time;
  absl::Duration advance_time;
  absl::Duration step_time;  // in which at least one step was under way
};

}  // namespace espalier
