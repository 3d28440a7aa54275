#include "pages/host_pool.h"

#include "base/check.h"

namespace espalier {

HostPool::HostPool(int num_slots) {
  CHECK_GE(num_slots, 0) << "slots";
  ref_counts_.resize(num_slots);
  free_.reserve(num_slots);  // so that Release never allocates
  for (int id = num_slots - 1; id >= 0; --id) free_.push_back(HostSlotId{id});
}

HostPool::~HostPool() { CHECK_EQ(num_held(), 0) << "slots outlive their pool"; }

HostSlot HostPool::Take() {
  if (free_.empty()) return HostSlot();
  const HostSlotId slot = free_.back();
  free_.pop_back();
  ref_counts_[slot.value] = 1;
  return HostSlot(this, slot);
}

}  // namespace espalier
