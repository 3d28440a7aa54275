// SmallVector: a vector of plain values with inline storage for four, so that
// small ones do not allocate. Most groups have one to four sequences, and plans
// and groups build vectors by sequence or candidate in every step.
//
// It behaves like std::vector, except that a move copies inline values, which
// invalidates pointers to them. The address of the values is stored rather than
// computed, because steps read these vectors more often than they build them.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace espalier {

template <typename T>
class SmallVector {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  using value_type = T;
  using size_type = size_t;
  using difference_type = std::ptrdiff_t;
  using reference = T&;
  using const_reference = const T&;
  using iterator = T*;
  using const_iterator = const T*;

  SmallVector() = default;
  explicit SmallVector(size_t size, T value = T()) { resize(size, value); }
  SmallVector(std::initializer_list<T> values) {
    assign(values.begin(), values.end());
  }
  template <std::forward_iterator It>
  SmallVector(It first, It last) {
    assign(first, last);
  }
  SmallVector(const SmallVector& other) { assign(other.begin(), other.end()); }
  SmallVector(SmallVector&& other) noexcept { Take(&other); }
  SmallVector& operator=(const SmallVector& other) {
    if (this != &other) assign(other.begin(), other.end());
    return *this;
  }
  SmallVector& operator=(SmallVector&& other) noexcept {
    if (this == &other) return *this;
    Free();
    Take(&other);
    return *this;
  }
  ~SmallVector() { Free(); }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  size_t capacity() const { return capacity_; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T* begin() { return data_; }
  const T* begin() const { return data_; }
  T* end() { return data_ + size_; }
  const T* end() const { return data_ + size_; }
  T& operator[](size_t idx) {
    assert(idx < size_);
    return data_[idx];
  }
  const T& operator[](size_t idx) const {
    assert(idx < size_);
    return data_[idx];
  }
  // Throws std::out_of_range.
  const T& at(size_t idx) const {
    if (idx >= size_) throw std::out_of_range("SmallVector::at");
    return data_[idx];
  }
  T& front() { return (*this)[0]; }
  const T& front() const { return (*this)[0]; }
  T& back() { return (*this)[size_ - 1]; }
  const T& back() const { return (*this)[size_ - 1]; }

  // If a growing method throws std::bad_alloc, it has changed nothing.
  void reserve(size_t size) {
    if (size > capacity_) Grow(size);
  }
  void resize(size_t size, T value = T()) {
    reserve(size);
    for (size_t i = size_; i < size; ++i) data_[i] = value;
    size_ = static_cast<uint32_t>(size);
  }
  void push_back(T value) {
    if (size_ == capacity_) Grow(size_ + size_t{1});
    data_[size_++] = value;
  }
  // REQUIRES: the values are not in this vector.
  void append(std::span<const T> values) {
    reserve(size_ + values.size());
    std::copy(values.begin(), values.end(), end());
    size_ += static_cast<uint32_t>(values.size());
  }
  // REQUIRES: the values are not in this vector, or are all of it.
  template <std::forward_iterator It>
  void assign(It first, It last) {
    const auto size = static_cast<size_t>(std::distance(first, last));
    reserve(size);
    std::copy(first, last, data_);
    size_ = static_cast<uint32_t>(size);
  }
  void assign(size_t size, T value) {
    clear();
    resize(size, value);
  }
  void pop_back() {
    assert(size_ > 0);
    --size_;
  }
  // Keeps the memory.
  void clear() { size_ = 0; }

  friend bool operator==(const SmallVector& a, const SmallVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  static constexpr uint32_t kNumInside = 4;

  T* Inside() { return reinterpret_cast<T*>(inside_); }
  bool IsInside() { return data_ == Inside(); }
  void Free() {
    if (!IsInside()) std::allocator<T>().deallocate(data_, capacity_);
  }
  // Moves the content of `*other` here; drops its own.
  void Take(SmallVector* other) {
    size_ = std::exchange(other->size_, 0);
    if (other->IsInside()) {
      data_ = Inside();
      capacity_ = kNumInside;
      std::memcpy(inside_, other->inside_, sizeof inside_);
    } else {
      data_ = std::exchange(other->data_, other->Inside());
      capacity_ = std::exchange(other->capacity_, kNumInside);
    }
  }
  // Not inlined, since adding a value rarely calls it.
  [[gnu::noinline]] void Grow(size_t size) {
    const size_t capacity = std::max<size_t>(size, 2 * size_t{capacity_});
    T* const data = std::allocator<T>().allocate(capacity);
    std::copy(begin(), end(), data);
    Free();
    data_ = data;
    capacity_ = static_cast<uint32_t>(capacity);
  }

  T* data_ = Inside();
  uint32_t size_ = 0;
  uint32_t capacity_ = kNumInside;
  alignas(T) std::byte inside_[kNumInside * sizeof(T)];
};

}  // namespace espalier
