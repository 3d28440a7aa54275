// Options of a scheduler (scheduler.h).
#pragma once

#include <memory>

#include "absl/status/status.h"

namespace espalier {

class TraceSink;  // trace/trace.h

// Default of SchedulerOptions::validate_steps: true in debug builds of the
// library.
bool ValidateStepsByDefault();

// Handling of pages that only a preempted group holds, if the executor has host
// memory for them (ModelDescription::num_host_slots).
enum class PreemptedPages {
  // Saves a page to host memory if loading is faster than computing its tokens,
  // by measurements so far.
  kAuto,
  kHost,  // all pages, as long as there is room
  kDrop,  // no pages; all are recomputed
};

struct SchedulerOptions {
  // Largest number of requests that run together. >= 1.
  int max_running = 256;
  // Largest number of tokens fed in one step, if the executor has room for
  // them. >= 1. A request is admitted only if its beams fit beside all others;
  // if the widest request has nearly as many beams or more, the others must fit
  // in a quarter of this. The default fills a CPU's multipliers and keeps the
  // activations of models with a few million parameters in its caches.
  int max_step_tokens = 128;
  // Fraction of a step's tokens for prompts while some are waiting to be fed;
  // at least one token, unless it is 0. Decoding gets the rest. If a group of
  // beams is wider than that, prompts and beams take steps in turn. In [0, 1].
  // See docs/scheduling.md, "The share of prompts".
  double prefill_share = 0.25;
  // Caches pages and shares them with requests that have the same prefix, if
  // the model's pages can be shared (ModelDescription::has_shareable_pages).
  // See docs/pages.md, "Sharing between requests".
  bool prefix_cache = true;
  // See docs/scheduling.md, "Preemption".
  PreemptedPages preempted_pages = PreemptedPages::kAuto;
  // Checks the page invariants after every plan and result (pages/validate.h).
  bool validate_steps = ValidateStepsByDefault();
  // Records the events of every request from its admission on, on the
  // scheduler's strand. Null: no trace, at no cost.
  std::shared_ptr<TraceSink> trace = nullptr;
};

// Errors: kInvalidArgument naming the option and its value.
absl::Status CheckOptions(const SchedulerOptions& options);

}  // namespace espalier
