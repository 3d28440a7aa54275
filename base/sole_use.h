// SoleUse: a flag of an object that can have only one user at a time. A second
// user is refused immediately, before it can do harm.
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
  void GiveBack() { is_taken_ = false; }  // REQUIRES: this user's Take was true

 private:
  std::atomic<bool> is_taken_{false};
};

}  // namespace espalier
