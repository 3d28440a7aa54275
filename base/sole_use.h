// SoleUse: a flag that an object that cannot be shared is in use. A second user
// is refused immediately, before it can do harm.
//
//   if (!steps->sole_use().Take()) return FailedPrecondition(...);
//
// Thread safety: any thread.
#pragma once

#include <atomic>

namespace espalier {

class SoleUse {
 public:
  SoleUse() = default;
  // A copy of the owning object is another object, and not in use.
  SoleUse(const SoleUse&) {}
  SoleUse& operator=(const SoleUse&) { return *this; }

  // Returns false if it is in use.
  bool Take() { return !is_taken_.exchange(true); }
  void GiveBack() { is_taken_ = false; }

 private:
  std::atomic<bool> is_taken_{false};
};

}  // namespace espalier
