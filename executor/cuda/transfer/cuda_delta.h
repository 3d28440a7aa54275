// CudaDelta: the writes of the host to device memory before a step, collected
// as segments of 4-byte words for one CudaApplyStagedWrites. ShadowedArray: a
// shadow copy of a device array that only the host writes; the array is sent
// only if its values differ from the copy.
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

// Returns page ids as words.
inline std::span<const int> Words(std::span<const PageId> pages) {
  static_assert(sizeof(PageId) == sizeof(int));
  return {reinterpret_cast<const int*>(pages.data()), pages.size()};
}

// True if T has no padding bytes, so that values with equal members are equal
// as bytes.
template <typename T>
concept HasNoPadding = std::is_trivially_copyable_v<T> && requires {
  typename std::bool_constant<(
      std::bit_cast<std::array<int, sizeof(T) / sizeof(int)>>(T{}), true)>;
};

class CudaDelta {
 public:
  // Target addresses are stored as offsets from `words`.
  explicit CudaDelta(const int* words) : words_(words) {}

  // Words of the payload that several targets can share.
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
// words to `payload`: the whole delta if it fits, else as many segments as fit.
// Returns the number of segments copied.
// REQUIRES: room for a segment of the longest kind, 64 words.
size_t CopyPiece(const CudaDelta& delta, size_t first,
                 std::span<CudaStagedWrite> segments, std::span<int> payload);

template <HasNoPadding T>
class ShadowedArray {
 public:
  // Writes `values` to the front of the device array if they differ from the
  // shadow copy. REQUIRES: all calls have the same `target`.
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
  // Invalidates the shadow copy.
  void Forget() { sent_.clear(); }
  // Invalidates the shadow copy except its first `count` values.
  void InvalidateFrom(size_t count) {
    if (count < sent_.size()) sent_.resize(count);
  }

 private:
  std::vector<T> sent_;  // values at the front of the device array
};

}  // namespace espalier
