#include "executor/cuda/batch/cuda_list_masks.h"

#include <iterator>

namespace espalier {

CudaListMasks::Slot CudaListMasks::Take(
    const std::shared_ptr<const void>& owner, std::span<const TokenId> list) {
  const Key key = {list.data(), list.size()};
  const auto found = by_key_.find(key);
  if (found != by_key_.end()) {
    Entry& entry = *found->second;
    entries_.splice(entries_.begin(), entries_, found->second);
    // As long as its owner lives, a list stays where it is.
    if (!entry.owner.expired()) return {.index = entry.index, .is_new = false};
    entry.owner = owner;
    return {.index = entry.index, .is_new = true};
  }
  if (static_cast<int>(entries_.size()) < num_slots_) {
    const int index = static_cast<int>(entries_.size());
    entries_.emplace_front().index = index;
  } else {
    by_key_.erase(entries_.back().key);
    entries_.splice(entries_.begin(), entries_, std::prev(entries_.end()));
  }
  Entry& entry = entries_.front();
  entry.owner = owner;
  entry.key = key;
  by_key_[key] = entries_.begin();
  return {.index = entry.index, .is_new = true};
}

void CudaListMasks::Clear() {
  entries_.clear();
  by_key_.clear();
}

}  // namespace espalier
