// DerivedValues: a cache of values derived from an immutable value, stored
// beside it, so that owners who share the value derive them only once.
//
//   std::shared_ptr<const Trie> trie =
//       derived.Get<Trie>({min_length}, [&] { return Trie(value, ...); });
//
// Values are looked up by type and key; the key holds all other inputs. The
// latest kMaxOfType values of a type are kept.
//
// REQUIRES: a kept value does not own its cache, even indirectly.
//
// Thread safety: thread-safe. Several threads may derive a value at the same
// time; all of them get the same one.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <typeindex>
#include <vector>

#include "absl/base/thread_annotations.h"

namespace espalier {

class DerivedValues {
 public:
  using Key = std::vector<int64_t>;
  static constexpr int kMaxOfType = 8;

  // Throws what `make` throws, and std::bad_alloc.
  template <typename Value, typename Make>
  std::shared_ptr<const Value> Get(const Key& key, const Make& make) {
    const std::type_index type = typeid(Value);
    std::shared_ptr<const void> value = Find(type, key);
    if (value == nullptr) {
      value = Keep(type, key, std::make_shared<const Value>(make()));
    }
    return std::static_pointer_cast<const Value>(std::move(value));
  }

  template <typename Value>
  bool Has(const Key& key) const {
    return Find(typeid(Value), key) != nullptr;
  }

  void Clear();

 private:
  struct Kept {
    std::type_index type;
    Key key;
    std::shared_ptr<const void> value;
  };

  // Returns null if it is not kept.
  std::shared_ptr<const void> Find(std::type_index type, const Key& key) const;
  // Keeps `value` and returns it, or the value that another thread kept first.
  std::shared_ptr<const void> Keep(std::type_index type, const Key& key,
                                   std::shared_ptr<const void> value);
  const Kept* FindKept(std::type_index type, const Key& key) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable std::mutex mutex_;
  std::vector<Kept> kept_ ABSL_GUARDED_BY(mutex_);  // oldest first
};

}  // namespace espalier
