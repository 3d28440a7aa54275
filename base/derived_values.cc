#include "base/derived_values.h"

#include <algorithm>
#include <utility>

namespace espalier {

void DerivedValues::Clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  kept_.clear();
}

const DerivedValues::Kept* DerivedValues::FindKept(std::type_index type,
                                                   const Key& key) const {
  const auto found = std::ranges::find_if(kept_, [&](const Kept& kept) {
    return kept.type == type && kept.key == key;
  });
  return found == kept_.end() ? nullptr : &*found;
}

std::shared_ptr<const void> DerivedValues::Find(std::type_index type,
                                                const Key& key) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Kept* const found = FindKept(type, key);
  return found == nullptr ? nullptr : found->value;
}

std::shared_ptr<const void> DerivedValues::Keep(
    std::type_index type, const Key& key, std::shared_ptr<const void> value) {
  std::shared_ptr<const void> dropped;  // destroyed without the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const Kept* const found = FindKept(type, key)) return found->value;
  const auto is_of_type = [&](const Kept& kept) { return kept.type == type; };
  if (std::ranges::count_if(kept_, is_of_type) >= kMaxOfType) {
    const auto oldest = std::ranges::find_if(kept_, is_of_type);
    dropped = std::move(oldest->value);
    kept_.erase(oldest);
  }
  kept_.push_back({type, key, value});
  return value;
}

}  // namespace espalier
