// GridDependency: the role of a kernel in programmatic dependent launch (PDL),
// declared at its launch, and a check that a chain of such kernels is ordered
// correctly.
//
// Under PDL a kernel starts when all blocks of the previous one have called
// LaunchDependents(); GridDependencyWait() returns when the previous one has
// completed (base/cuda_launch.cuh). Every block of every kernel waits, so no
// kernel completes before its predecessors, and completion is transitive: after
// the wait, all earlier kernels have completed. Before the wait a kernel may
// access only constants (weights) and its own shared memory. Two kinds of
// kernel make more reads safe:
//
//   kWritesEarlyRead  writes memory that some kernel reads before its wait: a
//                     step's work lists, tables, positions, sums, edits
//   kBarrier          calls LaunchDependents() after its wait: when any later
//                     kernel starts, all kernels before the barrier have
//                     completed
//   kReadsEarly       reads, before its wait, memory that was complete at the
//                     last barrier
//
//   ApplyDelta ─> BeginStep ─> Embed ───> RotateAndStore ─> Attend ─> ...
//   writes        writes       barrier    reads early       reads early
//
// A kernel that reads early may therefore follow one that writes such memory
// only with a barrier between them. Launch() rejects a chain that breaks this
// rule. A graph is checked at capture; its replays, and kernels between them,
// are not checked.
#pragma once

#include "absl/status/status.h"

namespace espalier {

enum class GridDependency {
  // Waits before its first access to anything but constants. No kernel reads
  // its
  // output before a wait, except after a barrier that the same function
  // enqueues
  // (kernels/gumbel_topk/cuda_gumbel_topk.cu).
  kWaitsFirst,
  kReadsEarly,
  kWritesEarlyRead,  // and waits first
  kBarrier,          // and waits first; writes nothing that is read early
};

// The order of the kernels of one stream. A value; one thread.
class GridDependencyOrder {
 public:
  // Adds the next kernel.
  // Errors: kInternal if it reads early while an earlier kernel may still be
  // writing; the order is then unchanged.
  absl::Status Add(GridDependency dependency);

 private:
  bool needs_barrier_ = false;
};

}  // namespace espalier
