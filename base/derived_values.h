// DerivedValues: what has been made of an immutable value, kept beside it, so
// that owners who share the value make it once.
//
//   std::shared_ptr<const Trie> trie =
//       derived.Get<Trie>({min_length}, [&] { return Trie(value, ...); });
//
// A value is found by its type and by a key, which has all that it depends on
// besides. The latest kMaxOfType of a type are kept.
//
// REQUIRES: a kept value does not own, even indirectly, what it is kept by.
//
// Thread safety: all of it. Threads that make one at the same time may each
// make it; they get the same one.
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

  // Null if there is none.
  std::shared_ptr<const void> Find(std::type_index type, const Key& key) const;
  // Returns what another thread has kept meanwhile, if it has.
  std::shared_ptr<const void> Keep(std::type_index type, const Key& key,
                                   std::shared_ptr<const void> value);
  const Kept* FindKept(std::type_index type, const Key& key) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable std::mutex mutex_;
  std::vector<Kept> kept_ ABSL_GUARDED_BY(mutex_);  // oldest first
};

}  // namespace espalier
