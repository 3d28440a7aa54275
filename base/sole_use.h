// SoleUse: who uses a thing that cannot be shared: a second user is refused at
// once, and nothing goes wrong later.
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
  // A copy of what is used is another thing, and free.
  SoleUse(const SoleUse&) {}
  SoleUse& operator=(const SoleUse&) { return *this; }

  // False if it is taken and not given back.
  bool Take() { return !is_taken_.exchange(true); }
  void GiveBack() { is_taken_ = false; }

 private:
  std::atomic<bool> is_taken_{false};
};

}  // namespace espalier
