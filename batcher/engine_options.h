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

class ItemCatalogues;     // constrain/item_catalogues.h
class Tokenizer;          // text/tokenizer/tokenizer.h
struct ModelDescription;  // base/model_description.h

struct EngineOptions {
  SchedulerOptions scheduler = {};
  // Decodes streamed tokens to text, and finds stop strings in it. Null: events
  // have tokens alone, and requests with stop strings are refused.
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;
  // Catalogues that requests name (ConstraintParams::items). Null: the engine
  // has its own, without any (Engine::items).
  std::shared_ptr<ItemCatalogues> items = nullptr;
  // Time limit of a step, from when it is the oldest in flight. If its result
  // does not arrive in time, all requests end with kUnavailable, new ones are
  // refused with kUnavailable until it arrives, and stopping the engine does
  // not wait for it. The limit must exceed the longest step: the first one may
  // compile, load and allocate, and the widest feeds max_step_tokens, or a
  // token for each running sequence, at most the model's max_beams, or a
  // source. > 0; infinite: no limit. See docs/step.md, "Faults".
  absl::Duration step_timeout = absl::InfiniteDuration();
  // Default of GenerationParams::speculate for requests that can speculate
  // (CanSpeculate). Unset: no speculation. See docs/speculation.md.
  std::optional<SpeculationParams> speculate = std::nullopt;
  // Waiting requests; >= 0. If scheduler.max_running + max_waiting requests are
  // open, from submission until they end or are cancelled, a new one is refused
  // with kResourceExhausted. Unset: no limit.
  std::optional<int> max_waiting = std::nullopt;
  // Prompt tokens of requests that have not started. A request whose prompt
  // would exceed the limit is refused as well. >= 0; 0: no limit.
  int64_t max_waiting_tokens = 0;
};

// Errors: as CheckOptions for the scheduler's options, and as ValidateParams
// for `speculate`.
absl::Status CheckEngineOptions(const EngineOptions& options,
                                const ModelDescription& model);

}  // namespace espalier
