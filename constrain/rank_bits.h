// RankBits: a constant array of bits with the positions of its ones: how many
// there are before a place (rank), and where the i-th is (select).
//
//   bits   0 1 1 0 1      Rank(3) = 2     Select(2) = 4
//
// base/rank_bits_view.h has what is kept beside the bits, and reads them.
//
// Thread safety: constant after Finish.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "base/rank_bits_view.h"

namespace espalier {

class RankBits {
 public:
  explicit RankBits(int64_t size = 0) : size_(size), words_(size / 64 + 1) {}
  // Bit i is bit i % 64 of word i / 64. Is finished.
  // REQUIRES: size / 64 + 1 words, the bits from `size` on 0.
  RankBits(int64_t size, std::vector<uint64_t> words)
      : size_(size), words_(std::move(words)) {
    Finish();
  }

  int64_t size() const { return size_; }
  bool operator[](int64_t i) const { return words_[i / 64] >> (i % 64) & 1; }

  // REQUIRES: not after Finish.
  void Set(int64_t i) { words_[i / 64] |= uint64_t{1} << (i % 64); }
  // Call once, when all bits are set.
  void Finish() {
    int64_t num_ones = 0;
    for (size_t w = 0; w < words_.size(); ++w) {
      if (w % RankBitsView::kBlockWords == 0) {
        counts_.push_back(static_cast<uint32_t>(num_ones));
      }
      const int ones = RankBitsView::NumOnes(words_[w]);
      // The next place to keep, if it is in this word.
      const int64_t next = std::ssize(places_) * RankBitsView::kPlaceOnes;
      if (next < num_ones + ones) {
        places_.push_back(static_cast<uint32_t>(w));
      }
      num_ones += ones;
    }
    counts_.push_back(static_cast<uint32_t>(num_ones));
    num_ones_ = num_ones;
  }

  // Valid as long as this object. REQUIRES: after Finish.
  RankBitsView view() const {
    return {.size = size_,
            .num_ones = num_ones_,
            .num_words = std::ssize(words_),
            .num_blocks = std::ssize(counts_) - 1,
            .num_places = std::ssize(places_),
            .words = words_.data(),
            .counts = counts_.data(),
            .places = places_.data()};
  }

  int64_t num_ones() const { return num_ones_; }
  int64_t Rank(int64_t i) const { return view().Rank(i); }
  int64_t Select(int64_t rank) const { return view().Select(rank); }

  int64_t num_bytes() const {
    return static_cast<int64_t>(words_.capacity() * sizeof(uint64_t) +
                                (counts_.capacity() + places_.capacity()) *
                                    sizeof(uint32_t));
  }

 private:
  int64_t size_;
  int64_t num_ones_ = 0;
  std::vector<uint64_t> words_;
  std::vector<uint32_t> counts_;
  std::vector<uint32_t> places_;
};

}  // namespace espalier
