// RankBitsView: an array of bits that knows how many ones there are before a
// place (rank), and where the i-th is (select). RankBits makes such arrays
// (constrain/rank_bits.h, with an example).
//
// It takes up to 1.75 bits for a bit: a count of the ones before each 128 bits,
// and the word of each 64th one. A rank reads at most two words beside its
// count; a select searches the counts between two places, and then reads as
// many.
//
// A value: pointers to arrays that others own, in host memory or in a device's.
// Source: Jacobson 1989, Space-efficient static trees and graphs.
#pragma once

#include <bit>
#include <cstdint>

#include "base/host_device.h"

namespace espalier {

struct RankBitsView {
  static constexpr int64_t kBlockWords = 2;
  static constexpr int64_t kPlaceOnes = 64;

  int64_t size = 0;  // bits
  int64_t num_ones = 0;
  int64_t num_words = 0;
  int64_t num_blocks = 0;
  int64_t num_places = 0;
  const uint64_t* words = nullptr;  // [num_words]
  // [num_blocks + 1]  ones before each block; the last, of all
  const uint32_t* counts = nullptr;
  const uint32_t* places = nullptr;  // [num_places]  words of each 64th one

  ESPALIER_HOST_DEVICE bool operator[](int64_t i) const {
    return words[i / 64] >> (i % 64) & 1;
  }
  // Returns the number of ones before place `i`, which is in [0, size].
  ESPALIER_HOST_DEVICE int64_t Rank(int64_t i) const {
    const int64_t word = i / 64;
    int64_t rank = counts[word / kBlockWords];
    if (word % kBlockWords != 0) rank += NumOnes(words[word - 1]);
    const uint64_t below = (uint64_t{1} << (i % 64)) - 1;
    return rank + NumOnes(words[word] & below);
  }
  // Returns the place of the one with `rank` ones before it; `size` for
  // num_ones.
  ESPALIER_HOST_DEVICE int64_t Select(int64_t rank) const {
    if (rank == num_ones) return size;
    const int64_t place = rank / kPlaceOnes;
    // The last block with at most `rank` ones before it is in [block, after).
    int64_t block = places[place] / kBlockWords;
    int64_t after = place + 1 < num_places ? places[place + 1] / kBlockWords + 1
                                           : num_blocks;
    while (after - block > 1) {
      const int64_t middle = (block + after) / 2;
      if (counts[middle] <= rank) {
        block = middle;
      } else {
        after = middle;
      }
    }
    auto left = static_cast<int>(rank - counts[block]);
    int64_t w = block * kBlockWords;
    const int ones = NumOnes(words[w]);
    if (ones <= left) {
      left -= ones;
      ++w;
    }
    return w * 64 + SelectInWord(words[w], left);
  }
  // Returns the place of the next one after that at `place`, which has `rank`
  // ones before it; `size` if there is none.
  ESPALIER_HOST_DEVICE int64_t SelectNext(int64_t place, int64_t rank) const {
    // Shifted twice, as a shift by 64 is undefined.
    const uint64_t after =
        words[place / 64] & (~uint64_t{0} << (place % 64) << 1);
    if (after == 0) return Select(rank + 1);
    return place / 64 * 64 + NumTrailingZeros(after);
  }

  // std::popcount is a call where the instruction cannot be relied on.
  ESPALIER_HOST_DEVICE static int NumOnes(uint64_t word) {
#ifdef __CUDA_ARCH__
    return __popcll(word);
#else
    return static_cast<int>(OnesOfBytes(word) * kEachByte >> 56);
#endif
  }

 private:
  static constexpr uint64_t kEachByte = 0x0101010101010101;

  // Returns the ones of each byte, in its place.
  ESPALIER_HOST_DEVICE static uint64_t OnesOfBytes(uint64_t word) {
    word -= word >> 1 & 0x55 * kEachByte;
    word = (word & 0x33 * kEachByte) + (word >> 2 & 0x33 * kEachByte);
    return (word + (word >> 4)) & 0x0F * kEachByte;
  }
  // REQUIRES: the word is not 0.
  ESPALIER_HOST_DEVICE static int NumTrailingZeros(uint64_t word) {
#ifdef __CUDA_ARCH__
    return __ffsll(static_cast<long long>(word)) - 1;
#else
    return std::countr_zero(word);
#endif
  }
  ESPALIER_HOST_DEVICE static int SelectInWord(uint64_t word, int rank) {
    uint64_t before = OnesOfBytes(word) * kEachByte;  // up to each byte's end
    int shift = 0;
    int left = rank;
    for (; static_cast<int>(before & 0xFF) <= rank; before >>= 8, shift += 8) {
      left = rank - static_cast<int>(before & 0xFF);
    }
    word >>= shift;
    for (; left > 0; --left) word &= word - 1;
    return shift + NumTrailingZeros(word);
  }
};

}  // namespace espalier
