// BatchOptions: the limits of Batches, apart from it for sources that should
// not read Asio.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "jobs/batch_job.h"

namespace espalier::jobs {

struct BatchOptions {
  BatchLimits limits = {};
  // Shared by tenants (tenant_shares.h). Beyond, batches that have ended
  // are forgotten, a tenant's own first.
  int64_t max_batches = 1'000;
  int max_running_calls = 8;
  // After a call that the engine had no room for, or a disk that failed.
  absl::Duration pause = absl::Seconds(1);
  // Then work on the files of batches gives way to calls that run.
  absl::Duration slice = absl::Milliseconds(3);
};

}  // namespace espalier::jobs
