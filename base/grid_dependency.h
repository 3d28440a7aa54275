// GridDependency: how a kernel takes part in programmatic dependent launch
// (PDL), declared where it is launched, and the check that a chain of such
// kernels keeps its order.
//
// Under PDL a kernel starts when all blocks of the one before it have called
// LaunchDependents(); GridDependencyWait() returns when that one has completed
// (base/cuda_launch.cuh). Threads of every block of every kernel wait, so none
// completes before what is in front of it, and completion is transitive: after
// the wait, all earlier kernels have completed. Ahead of the wait a kernel may
// touch constants (weights) and its own shared memory; and two kinds of kernel
// make it safe to read more:
//
//   kWritesEarlyRead  writes memory that some kernel reads before its wait: a
//                     step's work lists, tables, positions, sums, edits
//   kBarrier          calls LaunchDependents() after its wait: when any later
//                     kernel starts, all that was enqueued before the barrier
//                     has completed
//   kReadsEarly       reads, before its wait, what was complete at the last
//                     barrier
//
//   ApplyDelta ─> BeginStep ─> Embed ───> RotateAndStore ─> Attend ─> ...
//   writes        writes       barrier    reads early       reads early
//
// So no kernel that reads early may follow one that writes such memory, unless
// a barrier is between them. Launch() refuses a chain that breaks this; of a
// graph, when it is captured: replays of it, and what is between them, are not
// looked at.
#pragma once

#include "absl/status/status.h"

namespace espalier {

enum class GridDependency {
  // Waits before its first access to anything but constants. Nothing that it
  // writes is read by a kernel that has not waited, unless after a barrier
  // that the same function enqueues (kernels/gumbel_topk/cuda_gumbel_topk.cu).
  kWaitsFirst,
  kReadsEarly,
  kWritesEarlyRead,  // and waits first
  kBarrier,          // and waits first; writes nothing that is read early
};

// The order of the kernels of one stream. A value; one thread.
class GridDependencyOrder {
 public:
  // A kernel is about to be enqueued.
  // Errors: kInternal if it reads early what an earlier kernel may still be
  // writing; the order is left as it was.
  absl::Status Add(GridDependency dependency);

 private:
  bool needs_barrier_ = false;
};

}  // namespace espalier
