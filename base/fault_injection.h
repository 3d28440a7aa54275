// Fault injection: places of the library where a test makes a call fail that
// does not fail by itself, or only where a machine has nothing left.
//
//   if (FaultInjected(FaultPoint::kTakePages)) return ResourceExhausted(...);
//
//   InjectedFault fault(FaultPoint::kTakePages, /*num_good=*/5);  // the test's
//   ...  // the sixth call at the point fails
//   EXPECT_TRUE(fault.has_struck());
//
// Always compiled in, so that what is tested is what runs: without a fault, a
// point costs the load of a word that nobody writes, and a branch. So points
// stand where something larger begins (pages are taken, a thread starts), not
// in loops over tokens or scores.
//
// What fails by other means has no point here: a Model or StepExecutor of the
// test's own; operator new (tests/replace_operator_new.h); the CUDA runtime, of
// which test programs have one of their own (tests/cuda_dry_run.h).
//
// Thread safety: any thread reaches points; one InjectedFault at a time.
#pragma once

#include <atomic>
#include <cstdint>

namespace espalier {

enum class FaultPoint {
  kNone,
  // A page table grows, or a group reserves tails, though pages were counted
  // before: they are said to be too few.
  kTakePages,
  // A thread of an executor or of a watchdog: the system has none.
  kStartThread,
  // A durable file is opened, written, synced, renamed or removed: the disk
  // fails, in the midst of what is written.
  kWriteFile,
};

namespace fault_injection_internal {

inline std::atomic<FaultPoint> armed_point{FaultPoint::kNone};
bool Strikes();

}  // namespace fault_injection_internal

// Whether the call fails that stands at this point.
inline bool FaultInjected(FaultPoint point) {
  if (fault_injection_internal::armed_point.load(std::memory_order_relaxed) !=
      point) {
    return false;
  }
  return fault_injection_internal::Strikes();
}

// While it lives, one call at `point` fails, after `num_good` that do not.
class InjectedFault {
 public:
  // REQUIRES: there is no other.
  InjectedFault(FaultPoint point, int64_t num_good);
  ~InjectedFault();
  InjectedFault(const InjectedFault&) = delete;
  InjectedFault& operator=(const InjectedFault&) = delete;

  bool has_struck() const;
};

}  // namespace espalier
