// Fault injection: points in the library at which a test can inject a failure
// that otherwise occurs only if a resource runs out or a disk fails.
//
//   if (FaultInjected(FaultPoint::kTakePages)) return ResourceExhausted(...);
//
//   InjectedFault fault(FaultPoint::kTakePages, /*num_good=*/5);  // in a test
//   ...  // the sixth call at the point fails
//   EXPECT_TRUE(fault.has_struck());
//
// Points are always compiled in, so that tests run the production code. Without
// a fault, a point costs the load of an unmodified word and a branch. Points
// are therefore placed at larger operations (page allocation, thread start),
// not in loops over tokens or scores.
//
// Other failures need no point here: tests implement their own Model or
// StepExecutor, replace operator new (tests/replace_operator_new.h), and link
// their own CUDA runtime (tests/cuda_dry_run.h).
//
// Thread safety: any thread may reach a point; one InjectedFault at a time.
#pragma once

#include <atomic>
#include <cstdint>

namespace espalier {

enum class FaultPoint {
  kNone,
  // A page table grows, or a group reserves tails. Fails for lack of pages,
  // although enough were counted before.
  kTakePages,
  // An executor or a watchdog starts a thread. The system has no more threads.
  kStartThread,
  // A durable file is opened, written, truncated, synced, renamed or removed.
  // The disk fails, possibly in the middle of a write.
  kWriteFile,
};

namespace fault_injection_internal {

inline std::atomic<FaultPoint> armed_point{FaultPoint::kNone};
bool Strikes();

}  // namespace fault_injection_internal

// True if the call at this point must fail. REQUIRES: not kNone.
inline bool FaultInjected(FaultPoint point) {
  if (fault_injection_internal::armed_point.load(std::memory_order_relaxed) !=
      point) {
    return false;
  }
  return fault_injection_internal::Strikes();
}

// Makes one call at `point` fail during its lifetime, after `num_good` calls
// that succeed.
class InjectedFault {
 public:
  // REQUIRES: no other InjectedFault exists; `point` is not kNone.
  InjectedFault(FaultPoint point, int64_t num_good);
  ~InjectedFault();
  InjectedFault(const InjectedFault&) = delete;
  InjectedFault& operator=(const InjectedFault&) = delete;

  bool has_struck() const;
};

}  // namespace espalier
