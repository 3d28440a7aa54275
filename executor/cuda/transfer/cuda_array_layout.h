// CudaArrayLayout: places arrays one after the other in one allocation of
// device memory, in words of four bytes as CudaDelta writes them. The owner
// lays its arrays out twice: first without memory, to count the words, then
// with memory, to set the pointers.
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

  // Sets `array` to the next `count` elements; does not touch it while words
  // are counted.
  template <typename T>
  void Add(T** array, int64_t count) {
    const DeviceRange range = layout_.Add("", count, sizeof(T));
    if (words_ != nullptr) *array = range.At<T>(words_);
  }

  // Size of all arrays so far.
  int64_t num_words() const {
    return static_cast<int64_t>(layout_.bytes() / sizeof(int));
  }

 private:
  static constexpr size_t kCacheLineBytes = 128;

  int* const words_;
  DeviceLayout layout_{kCacheLineBytes};
};

}  // namespace espalier
