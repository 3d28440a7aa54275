// NumberTable: finds the number of something that is kept elsewhere, by its
// hash: a table with open addressing and without nodes.
//
//   const auto is_text = [&](int32_t n) { return texts[n] == text; };
//   const int32_t number =
//       table.FindOrAdd(HashOf(text), texts.size(), is_text);
//   if (number == texts.size()) texts.push_back(text);
//
// Thread safety: none; one compilation's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace espalier {

class NumberTable {
 public:
  // Returns the number with this hash for which is_same(number) is true. If
  // there is none, adds `next` and returns it.
  // REQUIRES: `next` is not negative and not in the table.
  template <typename IsSame>
  int32_t FindOrAdd(uint64_t hash, int32_t next, const IsSame& is_same) {
    if (2 * size_ >= slots_.size()) Grow();
    const auto tag = static_cast<uint32_t>(hash);
    const size_t mask = slots_.size() - 1;
    size_t slot = tag & mask;
    for (; slots_[slot].number >= 0; slot = (slot + 1) & mask) {
      if (slots_[slot].tag == tag && is_same(slots_[slot].number)) {
        return slots_[slot].number;
      }
    }
    slots_[slot] = {tag, next};
    ++size_;
    return next;
  }

 private:
  struct Slot {
    uint32_t tag = 0;     // low bits of the hash
    int32_t number = -1;  // negative: the slot is free
  };

  void Grow() {
    const std::vector<Slot> old =
        std::exchange(slots_, std::vector<Slot>(2 * slots_.size()));
    const size_t mask = slots_.size() - 1;
    for (const Slot& entry : old) {
      if (entry.number < 0) continue;
      size_t slot = entry.tag & mask;
      while (slots_[slot].number >= 0) slot = (slot + 1) & mask;
      slots_[slot] = entry;
    }
  }

  size_t size_ = 0;
  // A power of two of them, at most half of which have a number.
  std::vector<Slot> slots_ = std::vector<Slot>(16);
};

}  // namespace espalier
