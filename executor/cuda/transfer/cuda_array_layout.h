// CudaArrayLayout: arrays one after the other in one piece of device memory
// that is allocated, and told of (cuda_delta.h), in words of four bytes.
// Whoever has such arrays lays them out twice: first with no memory, to count
// the words, then with it, to set the pointers.
//
//   int64_t LayOut(const CudaDraftLimits& limits, int* words, Arrays* arrays) {
//     CudaArrayLayout layout(words);
//     layout.Add(&arrays->draws, limits.max_rows);
//     return layout.num_words();
//   }
//
// Each array begins on a cache line. A plain value.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/device_layout.h"

namespace espalier {

class CudaArrayLayout {
 public:
  // `words` is null while words are counted.
  explicit CudaArrayLayout(int* words) : words_(words) {}

  // Sets `array` to the next `count` elements, or leaves it as it is where
  // words are counted.
  template <typename T>
  void Add(T** array, int64_t count) {
    const DeviceRange range = layout_.Add("", count, sizeof(T));
    if (words_ != nullptr) *array = range.At<T>(words_);
  }

  // Of all arrays so far.
  int64_t num_words() const {
    return static_cast<int64_t>(layout_.bytes() / sizeof(int));
  }

 private:
  static constexpr size_t kCacheLineBytes = 128;

  int* const words_;
  DeviceLayout layout_{kCacheLineBytes};
};

}  // namespace espalier
