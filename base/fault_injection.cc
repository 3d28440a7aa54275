#include "base/fault_injection.h"

#include "base/check.h"

namespace espalier {
namespace {

// Calls until one fails; negative once it has.
std::atomic<int64_t> num_good_left{0};

}  // namespace

bool fault_injection_internal::Strikes() {
  return num_good_left.fetch_sub(1) == 0;
}

InjectedFault::InjectedFault(FaultPoint point, int64_t num_good) {
  using fault_injection_internal::armed_point;
  CHECK(armed_point.load() == FaultPoint::kNone) << "two faults at a time";
  num_good_left = num_good;
  armed_point = point;
}

InjectedFault::~InjectedFault() {
  fault_injection_internal::armed_point = FaultPoint::kNone;
}

bool InjectedFault::has_struck() const { return num_good_left < 0; }

}  // namespace espalier
