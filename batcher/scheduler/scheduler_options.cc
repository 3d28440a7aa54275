#include "batcher/scheduler/scheduler_options.h"

#include "base/status.h"

namespace espalier {

bool ValidateStepsByDefault() {
#ifdef NDEBUG
  return false;
#else
  return true;
#endif
}

absl::Status CheckOptions(const SchedulerOptions& options) {
  if (options.max_running < 1) {
    return InvalidArgument("scheduler.max_running must be at least 1, got ",
                           options.max_running);
  }
  if (options.max_step_tokens < 1) {
    return InvalidArgument("scheduler.max_step_tokens must be at least 1, got ",
                           options.max_step_tokens);
  }
  if (!(options.prefill_share >= 0 && options.prefill_share <= 1)) {
    return InvalidArgument("scheduler.prefill_share must be in [0, 1], got ",
                           options.prefill_share);
  }
  return absl::OkStatus();
}

}  // namespace espalier
