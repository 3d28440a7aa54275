// CudaDelta: what the host changes in device memory before a step, collected
// as segments of 4-byte words for one CudaApplyStagedWrites. ShadowedArray:
// what was sent of an array that the host alone writes, so that it is sent when
// it differs from that.
//
//   CudaDelta delta(words);
//   delta.Put(arrays.positions + slot, {&position, 1});
//   // Nothing if nothing changed.
//   row_groups.Update(groups_of_rows, arrays.row_groups, &delta);
//
// Thread safety: plain values, of one thread.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "base/ids.h"
#include "kernels/resident/cuda_resident.h"

namespace espalier {

// Page ids, as the device has them.
inline std::span<const int> Words(std::span<const PageId> pages) {
  static_assert(sizeof(PageId) == sizeof(int));
  return {reinterpret_cast<const int*>(pages.data()), pages.size()};
}

// Whether all bytes of a T are of its members: then values of equal members
// are equal as bytes.
template <typename T>
concept HasNoPadding = std::is_trivially_copyable_v<T> && requires {
  typename std::bool_constant<(
      std::bit_cast<std::array<int, sizeof(T) / sizeof(int)>>(T{}), true)>;
};

class CudaDelta {
 public:
  // `words` is where targets are counted from.
  explicit CudaDelta(const int* words) : words_(words) {}

  // Words of the payload, to be put in several places.
  struct Shared {
    int source = 0;
    int count = 0;
  };
  Shared Share(std::span<const int> words);
  void Put(const int* target, Shared words);

  // `target` is in device memory, at or after `words`.
  template <HasNoPadding T>
  void Put(const T* target, std::span<const T> values) {
    static_assert(alignof(T) % sizeof(int) == 0);
    Put(reinterpret_cast<const int*>(target),
        Share({reinterpret_cast<const int*>(values.data()),
               values.size_bytes() / sizeof(int)}));
  }
  template <HasNoPadding T>
  void Put(const T* target, const T& value) {
    Put(target, std::span(&value, 1));
  }

  bool empty() const { return segments_.empty(); }
  void Clear();
  std::span<const CudaStagedWrite> segments() const { return segments_; }
  std::span<const int> payload() const { return payload_; }

 private:
  const int* const words_;
  std::vector<CudaStagedWrite> segments_;
  std::vector<int> payload_;
};

// Copies segments from number `first` on to the front of `segments`, and their
// words to `payload`: all of the delta where it fits, else as many segments as
// do. Returns how many.
// REQUIRES: room for a segment of the longest kind, 64 words.
size_t CopyPiece(const CudaDelta& delta, size_t first,
                 std::span<CudaStagedWrite> segments, std::span<int> payload);

template <HasNoPadding T>
class ShadowedArray {
 public:
  // Makes the device's array, always the same, begin with `values`.
  void Update(std::span<const T> values, const T* target, CudaDelta* delta) {
    const size_t bytes = values.size_bytes();
    if (sent_.size() >= values.size() &&
        (bytes == 0 || std::memcmp(sent_.data(), values.data(), bytes) == 0)) {
      return;
    }
    if (sent_.size() < values.size()) sent_.resize(values.size());
    std::memcpy(sent_.data(), values.data(), bytes);
    delta->Put(target, values);
  }
  // What was sent is lost.
  void Forget() { sent_.clear(); }
  // But for the first `count` values.
  void InvalidateFrom(size_t count) {
    if (count < sent_.size()) sent_.resize(count);
  }

 private:
  std::vector<T> sent_;  // what the device's array begins with
};

}  // namespace espalier
