#include "executor/cuda/batch/cuda_mask_slots.h"

#include <functional>
#include <iterator>

namespace espalier {

size_t CudaMaskSlots::KeyHash::operator()(const Key& key) const {
  return std::hash<const void*>()(key.list) * 31 +
         static_cast<size_t>(key.constraint);
}

CudaMaskSlots::Slot CudaMaskSlots::Take(const Key& key) {
  const auto found = by_key_.find(key);
  if (found != by_key_.end()) {
    entries_.splice(entries_.begin(), entries_, found->second);
    return {.index = found->second->index, .is_new = false};
  }
  if (static_cast<int>(entries_.size()) < num_slots_) {
    entries_.push_front({key, static_cast<int>(entries_.size())});
  } else {
    by_key_.erase(entries_.back().key);
    entries_.splice(entries_.begin(), entries_, std::prev(entries_.end()));
    entries_.front().key = key;
  }
  by_key_[key] = entries_.begin();
  return {.index = entries_.front().index, .is_new = true};
}

void CudaMaskSlots::Clear() {
  entries_.clear();
  by_key_.clear();
}

}  // namespace espalier
