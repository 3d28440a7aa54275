// Loads of a row's logits by a warp, piece by piece, and the addition of a
// lane's 16 logits to its sum of exponentials. Selection and sampling read rows
// alike, so that a row's log_sum has the same bits in both.
#pragma once

#include "kernels/logits/cuda_row_tiles.cuh"

namespace espalier::cuda_logits {

// A lane's 16 logits of a piece, as stored in memory.
template <typename T>
struct LanePiece {
  static constexpr int kPerLoad = 16 / sizeof(T);
  static constexpr int kLoads = kWarpLoadSize / kWarpSize / kPerLoad;
  uint4 words[kLoads];
};

// Streaming load: the few logits that are read again come from L2. Not
// ld.global.nc, which is only for memory that is not written while the kernel
// runs: this kernel may start before the one that writes the logits has ended.
__device__ inline uint4 LoadNoAllocate(const void* from) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

__device__ inline uint32_t BitsAt(const float* row, int i, int size) {
  return i < size ? __float_as_uint(row[i]) : 0xFF800000u;  // -inf
}
__device__ inline uint32_t BitsAt(const uint16_t* row, int i, int size) {
  return i < size ? row[i] : 0xFF80u;  // -inf
}

// Loads words element by element: at a row's end, and in rows that are not
// 16-byte aligned. The same lanes get the same elements.
template <typename T>
__device__ uint4 LoadElements(const T* row, int begin, int size) {
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(T) == 4) {
      words[i] = BitsAt(row, begin + i, size);
    } else {
      words[i] = BitsAt(row, begin + 2 * i, size) |
                 BitsAt(row, begin + 2 * i + 1, size) << 16;
    }
  }
  return {words[0], words[1], words[2], words[3]};
}

template <typename T>
__device__ LanePiece<T> LoadPiece(const T* row, int piece, int size,
                                  bool aligned) {
  constexpr int kPerLoad = LanePiece<T>::kPerLoad;
  const int begin = piece * kWarpLoadSize +
                    static_cast<int>(threadIdx.x % kWarpSize) * kPerLoad;
  const bool whole = aligned && (piece + 1) * kWarpLoadSize <= size;
  constexpr int kStride = kWarpSize * kPerLoad;
  LanePiece<T> loaded;
  if (whole) {
#pragma unroll
    for (int i = 0; i < LanePiece<T>::kLoads; ++i) {
      loaded.words[i] = LoadNoAllocate(row + begin + i * kStride);
    }
  } else {
#pragma unroll
    for (int i = 0; i < LanePiece<T>::kLoads; ++i) {
      loaded.words[i] = LoadElements(row, begin + i * kStride, size);
    }
  }
  return loaded;
}

// Writes a piece that LoadPiece loaded to another row of the same size, aligned
// or not.
__device__ inline void StorePiece(const LanePiece<float>& piece, int index,
                                  int size, float* row) {
  const bool aligned = reinterpret_cast<uintptr_t>(row) % 16 == 0;
  const int begin =
      index * kWarpLoadSize + static_cast<int>(threadIdx.x % kWarpSize) * 4;
#pragma unroll
  for (int i = 0; i < LanePiece<float>::kLoads; ++i) {
    const int at = begin + i * kWarpSize * 4;
    const uint4 words = piece.words[i];
    if (aligned && at + 4 <= size) {
      *reinterpret_cast<uint4*>(row + at) = words;
      continue;
    }
    if (at < size) row[at] = __uint_as_float(words.x);
    if (at + 1 < size) row[at + 1] = __uint_as_float(words.y);
    if (at + 2 < size) row[at + 2] = __uint_as_float(words.z);
    if (at + 3 < size) row[at + 3] = __uint_as_float(words.w);
  }
}

// A row whose pieces a warp loads. T as in RowLogits.
template <typename T>
class RowPieces {
 public:
  // `logits` is one row, [vocab_size].
  __device__ RowPieces(const T* logits, int vocab_size)
      : logits_(logits),
        vocab_size_(vocab_size),
        aligned_(reinterpret_cast<uintptr_t>(logits_) % 16 == 0) {}
  // Row `row` of `logits`, [rows, vocab_size].
  __device__ RowPieces(const void* logits, int row, int vocab_size)
      : RowPieces(static_cast<const T*>(logits) + size_t(row) * vocab_size,
                  vocab_size) {}

  __device__ LanePiece<T> Load(int piece) const {
    return LoadPiece(logits_, piece, vocab_size_, aligned_);
  }
  __device__ const T* logits() const { return logits_; }

 private:
  const T* logits_;
  int vocab_size_;
  bool aligned_;
};

// Returns the i-th of a lane's tokens of a piece.
template <typename T>
__device__ int PieceToken(int piece, int i) {
  constexpr int kPerLoad = LanePiece<T>::kPerLoad;
  const int lane = threadIdx.x % kWarpSize;
  return piece * kWarpLoadSize + i / kPerLoad * (kWarpSize * kPerLoad) +
         lane * kPerLoad + i % kPerLoad;
}

__device__ inline void Unpack(const LanePiece<float>& piece, float (&x)[16]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[4 * i] = __uint_as_float(piece.words[i].x);
    x[4 * i + 1] = __uint_as_float(piece.words[i].y);
    x[4 * i + 2] = __uint_as_float(piece.words[i].z);
    x[4 * i + 3] = __uint_as_float(piece.words[i].w);
  }
}
__device__ inline void Unpack(const LanePiece<uint16_t>& piece,
                              float (&x)[16]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t words[4] = {piece.words[i].x, piece.words[i].y,
                               piece.words[i].z, piece.words[i].w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      x[8 * i + 2 * j] = __uint_as_float(words[j] << 16);
      x[8 * i + 2 * j + 1] = __uint_as_float(words[j] & 0xFFFF0000u);
    }
  }
}

__device__ inline float SumOfExp(const float (&x)[16], float max) {
  float sums[4] = {};
#pragma unroll
  for (int i = 0; i < 16; ++i) sums[i % 4] += FastExp(x[i] - max);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// The assembler concludes from max >= x that no exponential is NaN, which is
// wrong for infinities, and would remove the test. It cannot see through a
// shuffle.
__device__ inline bool IsNan(float sum) {
  return isnan(__shfl_sync(kAllLanes, sum, threadIdx.x % kWarpSize));
}

// The sum if SumOfExp is NaN: a logit is NaN, or `max` is infinite.
__device__ inline float CarefulSumOfExp(const float (&x)[16], float max) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const float e = x[i] == max ? 1.0f : FastExp(x[i] - max);
    sum += x[i] > MinusInf() ? e : 0.0f;
  }
  return sum;
}

// Adds logits to a lane's sum of a tile; calls look() if one may be NaN.
template <typename Look>
__device__ inline void AddLogits(const float (&x)[16], LogSum& lane,
                                 const Look& look) {
  float top = lane.max;
#pragma unroll
  for (int i = 0; i < 16; ++i) top = fmaxf(top, x[i]);  // ignores NaN
  float sum = SumOfExp(x, top);
  if (IsNan(sum)) {
    sum = CarefulSumOfExp(x, top);
    look();
  }
  lane = {top, lane.Scaled(top) + sum};
}
__device__ inline void AddLogits(const float (&x)[16], LogSum& lane) {
  AddLogits(x, lane, [] {});
}

}  // namespace espalier::cuda_logits
