// AlignedVector: a std::vector whose data begins on a cache line, so that no
// SIMD load of packed data straddles two.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace espalier {

inline constexpr std::align_val_t kCacheLine{64};

template <typename T>
struct CacheLineAllocator {
  using value_type = T;

  CacheLineAllocator() = default;
  template <typename U>
  CacheLineAllocator(const CacheLineAllocator<U>&) {}

  T* allocate(size_t n) {
    return static_cast<T*>(::operator new(n * sizeof(T), kCacheLine));
  }
  void deallocate(T* data, size_t) { ::operator delete(data, kCacheLine); }

  friend bool operator==(const CacheLineAllocator&,
                         const CacheLineAllocator&) = default;
};

template <typename T>
using AlignedVector = std::vector<T, CacheLineAllocator<T>>;

}  // namespace espalier
