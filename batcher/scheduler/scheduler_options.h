// Options of a scheduler (scheduler.h).
#pragma once

#include <memory>

#include "absl/status/status.h"

namespace espalier {

class TraceSink;  // trace/trace.h

// Whether steps are validated unless options say otherwise: in debug builds of
// the library.
bool ValidateStepsByDefault();

// What becomes of pages that a preempted group alone holds, where the executor
// has host memory for them (ModelDescription::num_host_slots).
enum class PreemptedPages {
  // Each goes to host memory if it is loaded from there sooner than its tokens
  // are computed, as far as that has been measured.
  kAuto,
  kHost,  // as long as there is room
  kDrop,  // all are computed again
};

struct SchedulerOptions {
  // Requests that run together at most. >= 1.
  int max_running = 256;
  // Tokens fed in one step, where the executor has room for as many. >= 1.
  // Requests are admitted only while their beams fit together; beside a request
  // of nearly as many beams or more, while all others' fit a quarter of this.
  // The default fills a CPU's multipliers and lets the activations of models of
  // a few million parameters stay in its caches.
  int max_step_tokens = 128;
  // The part of a step's tokens that prompts get while some are not fed yet; at
  // least one token, unless it is 0. Decodes get the rest. Where a group of
  // beams is wider than that, the two take steps in turn. In [0, 1]. See
  // docs/scheduling.md, "The share of prompts".
  double prefill_share = 0.25;
  // Keeps the pages of what was fed, and shares them with requests that begin
  // alike, if the model's pages can be shared
  // (ModelDescription::has_shareable_pages). See docs/pages.md, "Sharing
  // between requests".
  bool prefix_cache = true;
  // See docs/scheduling.md, "Preemption".
  PreemptedPages preempted_pages = PreemptedPages::kAuto;
  // Checks the page invariants after every plan and result (pages/validate.h).
  bool validate_steps = ValidateStepsByDefault();
  // Records what every request does from its admission on, on the scheduler's
  // strand. Null: no trace, at no cost.
  std::shared_ptr<TraceSink> trace = nullptr;
};

// Errors: kInvalidArgument naming the option and its value.
absl::Status CheckOptions(const SchedulerOptions& options);

}  // namespace espalier
