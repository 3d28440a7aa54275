// EngineFigures: counters of an engine (engine.h) and of its scheduler.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace espalier {

// What a scheduler has done since its construction. Of a group planned ahead
// of the answer that ended it, only the step counts.
struct SchedulerFigures {
  int64_t num_steps = 0;
  int64_t num_prompt_tokens = 0;     // fed
  int64_t num_decode_rows = 0;       // live beams fed, one token each
  int64_t num_generated_tokens = 0;  // in the hypotheses returned
  int64_t num_cached_tokens = 0;     // of prompts, shared instead of fed
  int64_t num_drafted_tokens = 0;    // fed to be verified
  int64_t num_accepted_tokens = 0;   // of these, by requests that have ended
  int64_t num_preemptions = 0;       // of groups
  int64_t num_tail_copies = 0;
  int max_tail_copies = 0;  // of one step
  // Pages held by requests, at most and summed over steps; and the same if
  // every beam had pages of its own.
  int64_t peak_pages = 0;
  int64_t peak_unshared_pages = 0;
  int64_t page_steps = 0;
  int64_t unshared_page_steps = 0;
  // What executors reported.
  absl::Duration forward_time;
  absl::Duration select_time;
};

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
  int num_away = 0;  // preempted: they gave their pages back, and will resume
  int num_pages_held = 0;  // by requests
  int num_pages_idle = 0;  // by the prefix cache alone: taken back when needed
};

}  // namespace espalier
