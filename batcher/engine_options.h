// Options of an engine (engine.h) and of its scheduler.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "request/speculation_params.h"

namespace espalier {

class Tokenizer;          // text/tokenizer/tokenizer.h
class TraceSink;          // trace/trace.h
struct ModelDescription;  // exec_request/model_description.h

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

struct EngineOptions {
  SchedulerOptions scheduler = {};
  // Makes text of what is streamed, and finds stop strings in it. Null: events
  // have tokens alone, and requests with stop strings are refused.
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;
  // How long a step may take, from when it is the oldest in flight. Where its
  // answer does not come within that, all requests end with kUnavailable, and
  // so do new ones until it comes; and what stops the engine does not wait for
  // it. Longer than the longest step there is: the first one may compile, load
  // and allocate, and the widest feeds max_step_tokens, or a token of each
  // sequence that runs, at most the model's max_beams, or a source. > 0;
  // infinite: a step is waited for as long as it takes. See docs/step.md,
  // "Faults".
  absl::Duration step_timeout = absl::InfiniteDuration();
  // How requests speculate that do not say (GenerationParams::speculate is
  // unset) and can (CanSpeculate). Unset: not at all. See docs/speculation.md.
  std::optional<SpeculationParams> speculate = std::nullopt;
  // Requests that wait until others end; >= 0. One that comes when
  // scheduler.max_running + max_waiting are open, from their submission until
  // they are answered or cancelled, is refused with kResourceExhausted. Unset:
  // no limit.
  std::optional<int> max_waiting = std::nullopt;
  // Prompt tokens of requests that have not started; one whose prompt does not
  // fit beside these is refused as well. >= 0; 0: no limit.
  int64_t max_waiting_tokens = 0;
};

// Errors: as CheckOptions, of the scheduler's options, too; and as
// ValidateParams of `speculate`.
absl::Status CheckEngineOptions(const EngineOptions& options,
                                const ModelDescription& model);

}  // namespace espalier
