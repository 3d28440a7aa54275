// Options of an engine (engine.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "batcher/scheduler/scheduler_options.h"
#include "request/speculation_params.h"

namespace espalier {

class Tokenizer;          // text/tokenizer/tokenizer.h
struct ModelDescription;  // exec_request/model_description.h

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
