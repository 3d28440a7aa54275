#include "base/grid_dependency.h"

#include "base/status.h"

namespace espalier {

absl::Status GridDependencyOrder::Add(GridDependency dependency) {
  switch (dependency) {
    case GridDependency::kWaitsFirst:
      return absl::OkStatus();
    case GridDependency::kWritesEarlyRead:
      needs_barrier_ = true;
      return absl::OkStatus();
    case GridDependency::kBarrier:
      needs_barrier_ = false;
      return absl::OkStatus();
    case GridDependency::kReadsEarly:
      break;
  }
  if (!needs_barrier_) return absl::OkStatus();
  return Internal(
      "a kernel that reads before its grid dependency wait follows one that "
      "writes such memory, without a barrier kernel between them");
}

}  // namespace espalier
