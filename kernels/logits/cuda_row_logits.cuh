// Rows of logits in kernels: the division of a row into pieces, and the logits
// that a thread reads.
//
// A row is read as tiles of 1,024 logits, each by one warp. Of a tile only the
// sum of its exponentials and the maxima of its four quarters are kept. Later
// steps need only these, and the few quarters whose maximum is high enough.
// Tiles are fixed pieces of a row and are summed in a fixed order, so the
// distribution of tiles over the device changes no bit.
#pragma once

#include <cstdint>

#include "kernels/logits/cuda_tile_shape.h"

namespace espalier::cuda_logits {

constexpr int kWarpSize = 32;
constexpr unsigned kAllLanes = 0xFFFFFFFFu;
constexpr int kWarpLoadSize = 512;  // 16 logits a lane, loaded at once
constexpr int kSubtileSize = kTileSize / kQuarters;

__device__ inline float MinusInf() { return -__int_as_float(0x7F800000); }

// The logits of one row in memory, and the tokens of a quarter. T is float, or
// uint16_t for the bits of bfloat16.
template <typename T>
class RowLogits {
 public:
  __device__ RowLogits(const T* logits, int vocab_size)
      : vocab_size_(vocab_size), logits_(logits) {}

  __device__ int vocab_size() const { return vocab_size_; }
  __device__ T Raw(int token) const { return logits_[token]; }
  __device__ static float ToFloat(T raw) {
    if constexpr (sizeof(T) == 4) {
      return raw;
    } else {
      return __uint_as_float(uint32_t{raw} << 16);
    }
  }
  // NaN counts as -inf.
  __device__ static float Clean(T raw) {
    const float x = ToFloat(raw);
    return x == x ? x : MinusInf();
  }
  __device__ float Logit(int token) const { return Clean(Raw(token)); }
  // True if four consecutive logits of a quarter's tile can be loaded as one
  // vector.
  __device__ bool LoadsFour(int quarter) const {
    return reinterpret_cast<uintptr_t>(logits_) % sizeof(Four) == 0 &&
           (quarter / kQuarters + 1) * kTileSize <= vocab_size_;
  }
  __device__ void LoadFour(int token, T* to) const {
    const Four four = *reinterpret_cast<const Four*>(logits_ + token);
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = four.values[i];
  }
  // Loads kSize logits before it waits for any. token_of(i) may be beyond the
  // row's end, and gives -inf there.
  template <int kSize, typename TokenOf>
  __device__ void Logits(const TokenOf& token_of,
                         float (&values)[kSize]) const {
    T raw[kSize];
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      raw[i] = Raw(min(token_of(i), vocab_size_ - 1));
    }
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      values[i] = token_of(i) < vocab_size_ ? Clean(raw[i]) : MinusInf();
    }
  }

  // Returns the quarter of a token. A quarter is the tokens that the same 8
  // lanes read, 16 bytes per lane and load.
  __device__ static int QuarterOf(int token) {
    return token / kTileSize * kQuarters + (token >> kRunBits) % kQuarters;
  }
  // Returns the i-th token of a quarter in the tile's first piece. Tokens of
  // the second piece are kWarpLoadSize further.
  __device__ static int TokenIn(int quarter, int i) {
    const int run = i >> kRunBits;
    return quarter / kQuarters * kTileSize +
           ((run * kQuarters + quarter % kQuarters) << kRunBits) +
           (i & ((1 << kRunBits) - 1));
  }
  // Returns the index of a token in its quarter.
  __device__ static int IndexIn(int token) {
    const int run = token % kTileSize >> kRunBits;
    return run / kQuarters << kRunBits | (token & ((1 << kRunBits) - 1));
  }

 private:
  struct alignas(4 * sizeof(T)) Four {
    T values[4];
  };

  // Log of the length of a quarter's runs of consecutive tokens.
  static constexpr int kRunBits = sizeof(T) == 4 ? 5 : 6;

  int vocab_size_;
  const T* logits_;
};

// A lane's logits of a quarter, of both pieces of the tile, as loaded. They are
// not converted before all loads are in flight.
constexpr int kPerLane = kSubtileSize / kWarpSize;
constexpr int kPerPiece = kPerLane / 2;
static_assert(kTileSize == 2 * kWarpLoadSize);

template <typename T>
__device__ int LaneToken(int quarter, int i) {
  const int lane = threadIdx.x % kWarpSize;
  return RowLogits<T>::TokenIn(quarter, lane * kPerPiece) + i % kPerPiece +
         i / kPerPiece * kWarpLoadSize;
}

template <typename T>
struct LaneLogits {
  int first;  // token
  alignas(16) T raw[kPerLane];

  LaneLogits() = default;
  __device__ LaneLogits(const RowLogits<T>& row, int quarter)
      : first(LaneToken<T>(quarter, 0)) {
    if (row.LoadsFour(quarter)) {
#pragma unroll
      for (int i = 0; i < kPerLane; i += kPerPiece) {
        row.LoadFour(token(i), raw + i);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) {
        raw[i] = row.Raw(min(token(i), row.vocab_size() - 1));
      }
    }
  }

  __device__ int token(int i) const {
    return first + i % kPerPiece + i / kPerPiece * kWarpLoadSize;
  }
  // May be NaN; -inf beyond the row's end.
  __device__ float value(const RowLogits<T>& row, int i) const {
    return token(i) < row.vocab_size() ? RowLogits<T>::ToFloat(raw[i])
                                       : MinusInf();
  }
};

}  // namespace espalier::cuda_logits
