// Rows of logits of which some may have a token mask, as a type for kernels: a
// launch without masks runs kernels of T, which spend no instruction and no
// register on them, and another runs those of Masked<T>.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/constrain/mask_words.h"

namespace espalier {

template <typename T>
struct Masked {};

template <typename T>
constexpr bool kIsMasked = false;
template <typename T>
constexpr bool kIsMasked<Masked<T>> = true;

template <typename T>
struct LogitOfRows {
  using Type = T;
};
template <typename T>
struct LogitOfRows<Masked<T>> {
  using Type = T;
};
// The type of the rows' logits: float, or uint16_t for the bits of bfloat16.
template <typename T>
using LogitOf = typename LogitOfRows<T>::Type;

// The mask of a row, if it has one. If not `kMasks`, no row has. A base class
// rather than a member, as an empty member would move copies of a row that are
// in registers to memory.
template <bool kMasks>
class RowMask {
 public:
  // `mask` is the index among `masks`, -1 for none.
  __device__ void SetMask(const uint32_t* /*masks*/, int /*mask*/,
                          int /*vocab_size*/) {}

  __device__ static bool has_mask() { return false; }
  // True if the mask bans the token.
  __device__ static bool IsMasked(int /*token*/) { return false; }
  // Returns the mask's bits of four tokens; `first` is a multiple of four.
  // REQUIRES: has_mask().
  __device__ static uint32_t FourAt(int /*first*/) { return 0xF; }
};

template <>
class RowMask<true> {
 public:
  __device__ void SetMask(const uint32_t* masks, int mask, int vocab_size) {
    if (mask >= 0) mask_ = masks + size_t(mask) * NumMaskWords(vocab_size);
  }

  __device__ bool has_mask() const { return mask_ != nullptr; }
  __device__ bool IsMasked(int token) const {
    return has_mask() && !IsInMask(mask_, token);
  }
  __device__ uint32_t FourAt(int first) const {
    return mask_[first / 32] >> (first % 32) & 0xF;
  }

 private:
  const uint32_t* mask_ = nullptr;
};

// True if rows of a call may have masks.
template <typename Inputs>
bool HasMasks(const Inputs& in) {
  return in.masks != nullptr && in.row_edits != nullptr;
}

// Returns call.operator()<T>() for the rows of a call.
template <typename Inputs, typename Call>
auto ByRowType(const Inputs& in, const Call& call) {
  const bool has_masks = HasMasks(in);
  if (in.dtype == DType::kFloat32) {
    return has_masks ? call.template operator()<Masked<float>>()
                     : call.template operator()<float>();
  }
  return has_masks ? call.template operator()<Masked<uint16_t>>()
                   : call.template operator()<uint16_t>();
}

}  // namespace espalier
