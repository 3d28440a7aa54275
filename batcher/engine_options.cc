#include "batcher/engine_options.h"

#include "base/status.h"
#include "request/generation_params.h"
#include "request/validate_speculation.h"

namespace espalier {

absl::Status CheckEngineOptions(const EngineOptions& options,
                                const ModelDescription& model) {
  RETURN_IF_ERROR(CheckOptions(options.scheduler));
  if (options.max_waiting.value_or(0) < 0) {
    return InvalidArgument("max_waiting must be at least 0, got ",
                           *options.max_waiting);
  }
  if (options.max_waiting_tokens < 0) {
    return InvalidArgument(
        "max_waiting_tokens must be at least 0, no limit, got ",
        options.max_waiting_tokens);
  }
  if (!(options.step_timeout > absl::ZeroDuration())) {
    return InvalidArgument("step_timeout must be above 0, got ",
                           options.step_timeout);
  }
  GenerationParams params;  // any default goes with these
  params.constraint.emplace();
  params.speculate = options.speculate;
  return ValidateSpeculation(model, params);
}

}  // namespace espalier
