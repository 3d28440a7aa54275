// CowVector: a vector of shared elements that are copied on write. Copying the
// vector copies no elements. Elements may have other owners too, so that code
// that builds a similar vector again and again can keep the elements and add
// them without a copy.
//
//   auto kept = std::make_shared<Value>(...);
//   CowVector<Value> values;
//   values.push_back(kept);      // no copy
//   CowVector<Value> same = values;
//   same.Edit(0).number = 7;     // copies the element; `values` keeps the old
//   EditShared(&kept).number = 8;  // likewise
//
// Thread safety: elements may have owners on other threads that only read them.
#pragma once

#include <atomic>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

namespace espalier {

// Replaces `*shared` by a copy of its value. Not inlined, since EditShared()
// rarely calls it.
template <typename T>
[[gnu::noinline]] void Unshare(std::shared_ptr<T>* shared) {
  *shared = std::make_shared<T>(**shared);
}

// Returns the value of `*shared` for writing, copied first if it has other
// owners.
template <typename T>
T& EditShared(std::shared_ptr<T>* shared) {
  if (shared->use_count() > 1) Unshare(shared);
  // Orders the reads of former owners before the caller's writes.
  std::atomic_thread_fence(std::memory_order_acquire);
  return **shared;
}

template <typename T>
class CowVector {
 public:
  class const_iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using pointer = const T*;
    using reference = const T&;

    const_iterator() = default;
    explicit const_iterator(const std::shared_ptr<T>* at) : at_(at) {}
    reference operator*() const { return **at_; }
    pointer operator->() const { return at_->get(); }
    const_iterator& operator++() {
      ++at_;
      return *this;
    }
    const_iterator operator++(int) { return const_iterator(at_++); }
    friend bool operator==(const_iterator, const_iterator) = default;

   private:
    const std::shared_ptr<T>* at_ = nullptr;
  };
  using iterator = const_iterator;
  using value_type = T;

  CowVector() = default;
  CowVector(std::initializer_list<T> values) {
    reserve(values.size());
    for (const T& value : values) push_back(value);
  }

  size_t size() const { return elements_.size(); }
  bool empty() const { return elements_.empty(); }
  const T& operator[](size_t idx) const { return *elements_[idx]; }
  const T& at(size_t idx) const { return *elements_.at(idx); }
  const T& back() const { return *elements_.back(); }
  const_iterator begin() const { return const_iterator(elements_.data()); }
  const_iterator end() const {
    return const_iterator(elements_.data() + elements_.size());
  }

  void reserve(size_t size) { elements_.reserve(size); }
  // Adds an element that may have other owners; not null.
  void push_back(std::shared_ptr<T> shared) {
    elements_.push_back(std::move(shared));
  }
  // Adds an element without other owners, and returns it for writing.
  T& push_back(T value) { return emplace_back(std::move(value)); }
  template <typename... Args>
  T& emplace_back(Args&&... args) {
    return *elements_.emplace_back(
        std::make_shared<T>(std::forward<Args>(args)...));
  }
  template <typename Predicate>
  void EraseIf(const Predicate& predicate) {
    std::erase_if(elements_, [&](const auto& e) { return predicate(*e); });
  }
  // Returns an element for writing until it or the vector is copied next.
  T& Edit(size_t idx) { return EditShared(&elements_[idx]); }

 private:
  std::vector<std::shared_ptr<T>> elements_;
};

}  // namespace espalier
