// SharedList: a copy-on-write vector. Copies share their elements, and values
// derived from these, until one of them is changed. Copying costs O(1).
//
//   SharedList<int64_t> ids = {7, 8};
//   SharedList<int64_t> same = ids;   // no copy
//   same.Edit().push_back(9);         // a copy, of `same` alone
//   const auto trie = ids.Derived<Trie>({}, [&] { return Trie(ids); });
//
// It reads like a vector, and converts to a constant one. An empty list
// allocates nothing.
//
// Thread safety: as a vector's; copies may be used on different threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "base/derived_values.h"
#include "base/unique_number.h"

namespace espalier {

template <typename T>
class SharedList {
 public:
  using value_type = T;
  using const_iterator = typename std::vector<T>::const_iterator;
  using iterator = const_iterator;

  SharedList() = default;
  SharedList(std::vector<T> items) {  // NOLINT: a vector is a list
    if (!items.empty()) node_ = std::make_shared<Node>(std::move(items));
  }
  SharedList(std::initializer_list<T> items)
      : SharedList(std::vector<T>(items)) {}
  template <typename Iterator>
  SharedList(Iterator begin, Iterator end)
      : SharedList(std::vector<T>(begin, end)) {}

  const std::vector<T>& items() const {
    static const std::vector<T> kNone;
    return node_ == nullptr ? kNone : node_->items;
  }
  operator const std::vector<T>&() const { return items(); }  // NOLINT

  size_t size() const { return items().size(); }
  bool empty() const { return items().empty(); }
  const T* data() const { return items().data(); }
  const_iterator begin() const { return items().begin(); }
  const_iterator end() const { return items().end(); }
  const T& operator[](size_t idx) const { return items()[idx]; }
  const T& front() const { return items().front(); }
  const T& back() const { return items().back(); }

  // Returns the elements for writing; other copies keep the old ones. Valid
  // until this list is copied: a later write would change the copy too.
  std::vector<T>& Edit() {
    if (node_ == nullptr || node_.use_count() > 1) {
      node_ = std::make_shared<Node>(items());
    } else {
      // Orders the reads of former owners before the caller's writes.
      std::atomic_thread_fence(std::memory_order_acquire);
      node_->derived.Clear();
      node_->id = NewUniqueNumber();
    }
    return node_->items;
  }
  void push_back(T item) { Edit().push_back(std::move(item)); }
  void clear() { node_ = nullptr; }
  void swap(SharedList& other) noexcept { node_.swap(other.node_); }

  // Identifies the elements: equal for copies of this list, different for all
  // other lists. 0: empty.
  int64_t id() const { return empty() ? 0 : node_->id; }

  // Returns make(), kept for all copies of this list. Evaluates it again once
  // DerivedValues::kMaxOfType newer keys have displaced the value. Two threads
  // may evaluate it at the same time; both get the same value. Throws what
  // `make` throws, and std::bad_alloc.
  // REQUIRES: not empty; make() depends only on the elements and `key`; the
  // value owns no copy of this list.
  template <typename Value, typename Make>
  std::shared_ptr<const Value> Derived(const DerivedValues::Key& key,
                                       const Make& make) const {
    return node_->derived.template Get<Value>(key, make);
  }

  // True if Derived keeps a value of this type and key.
  // REQUIRES: not empty.
  template <typename Value>
  bool HasDerived(const DerivedValues::Key& key) const {
    return node_->derived.template Has<Value>(key);
  }

  friend bool operator==(const SharedList& a, const SharedList& b) {
    return a.node_ == b.node_ || a.items() == b.items();
  }

 private:
  struct Node {
    explicit Node(std::vector<T> elements) : items(std::move(elements)) {}

    std::vector<T> items;
    int64_t id = NewUniqueNumber();
    DerivedValues derived;
  };

  std::shared_ptr<Node> node_;  // null: empty
};

}  // namespace espalier
