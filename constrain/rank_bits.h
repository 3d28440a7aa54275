// RankBits: a constant array of bits with the positions of its ones: how many
// there are before a place (rank), and where the i-th is (select).
//
//   bits   0 1 1 0 1      Rank(3) = 2     Select(2) = 4
//
// It takes up to 1.75 bits for a bit: a count of the ones before each 128 bits,
// and the word of each 64th one. A rank reads at most two words beside its
// count; a select searches the counts between two places, and then reads as
// many.
//
// Thread safety: constant after Finish.
// Source: Jacobson 1989, Space-efficient static trees and graphs.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace espalier {

class RankBits {
 public:
  explicit RankBits(int64_t size = 0) : size_(size), words_(size / 64 + 1) {}

  int64_t size() const { return size_; }
  bool operator[](int64_t i) const { return words_[i / 64] >> (i % 64) & 1; }

  // REQUIRES: not after Finish.
  void Set(int64_t i) { words_[i / 64] |= uint64_t{1} << (i % 64); }
  // Call once, when all bits are set.
  void Finish() {
    int64_t num_ones = 0;
    for (size_t w = 0; w < words_.size(); ++w) {
      if (w % kBlockWords == 0) {
        counts_.push_back(static_cast<uint32_t>(num_ones));
      }
      const int ones = NumOnes(words_[w]);
      // The next place to keep, if it is in this word.
      const int64_t next = std::ssize(places_) * kPlaceOnes;
      if (next < num_ones + ones) {
        places_.push_back(static_cast<uint32_t>(w));
      }
      num_ones += ones;
    }
    counts_.push_back(static_cast<uint32_t>(num_ones));
    num_ones_ = num_ones;
  }

  int64_t num_ones() const { return num_ones_; }
  // Returns the number of ones before place `i`, which is in [0, size()].
  int64_t Rank(int64_t i) const {
    const int64_t word = i / 64;
    int64_t rank = counts_[word / kBlockWords];
    if (word % kBlockWords != 0) rank += NumOnes(words_[word - 1]);
    const uint64_t below = (uint64_t{1} << (i % 64)) - 1;
    return rank + NumOnes(words_[word] & below);
  }
  // Returns the place of the one with `rank` ones before it; size() for
  // num_ones().
  int64_t Select(int64_t rank) const {
    if (rank == num_ones_) return size_;
    const int64_t place = rank / kPlaceOnes;
    const int64_t first = places_[place] / kBlockWords;
    const int64_t last = place + 1 < std::ssize(places_)
                             ? places_[place + 1] / kBlockWords
                             : std::ssize(counts_) - 2;
    // The last block with at most `rank` ones before it.
    const auto block =
        std::upper_bound(counts_.begin() + first, counts_.begin() + last + 1,
                         static_cast<uint32_t>(rank)) -
        counts_.begin() - 1;
    auto left = static_cast<int>(rank - counts_[block]);
    int64_t w = block * kBlockWords;
    const int ones = NumOnes(words_[w]);
    if (ones <= left) {
      left -= ones;
      ++w;
    }
    return w * 64 + SelectInWord(words_[w], left);
  }
  // Returns the place of the first one from `i` on; size() if there is none.
  int64_t NextOne(int64_t i) const {
    int64_t w = i / 64;
    uint64_t word = words_[w] & (~uint64_t{0} << (i % 64));
    while (word == 0) {
      if (++w == std::ssize(words_)) return size_;
      word = words_[w];
    }
    return w * 64 + std::countr_zero(word);
  }

  int64_t num_bytes() const {
    return static_cast<int64_t>(words_.capacity() * sizeof(uint64_t) +
                                (counts_.capacity() + places_.capacity()) *
                                    sizeof(uint32_t));
  }

 private:
  static constexpr int64_t kBlockWords = 2;
  static constexpr int64_t kPlaceOnes = 64;
  static constexpr uint64_t kEachByte = 0x0101010101010101;

  // Returns the ones of each byte, in its place. std::popcount is a call where
  // the instruction cannot be relied on.
  static uint64_t OnesOfBytes(uint64_t word) {
    word -= word >> 1 & 0x55 * kEachByte;
    word = (word & 0x33 * kEachByte) + (word >> 2 & 0x33 * kEachByte);
    return (word + (word >> 4)) & 0x0F * kEachByte;
  }
  static int NumOnes(uint64_t word) {
    return static_cast<int>(OnesOfBytes(word) * kEachByte >> 56);
  }
  static int SelectInWord(uint64_t word, int rank) {
    uint64_t before = OnesOfBytes(word) * kEachByte;  // up to each byte's end
    int shift = 0;
    int left = rank;
    for (; static_cast<int>(before & 0xFF) <= rank; before >>= 8, shift += 8) {
      left = rank - static_cast<int>(before & 0xFF);
    }
    word >>= shift;
    for (; left > 0; --left) word &= word - 1;
    return shift + std::countr_zero(word);
  }

  int64_t size_;
  int64_t num_ones_ = 0;
  std::vector<uint64_t> words_;
  // [blocks + 1]  ones before each block; the last, of all.
  std::vector<uint32_t> counts_;
  std::vector<uint32_t> places_;  // words of each 64th one
};

}  // namespace espalier
