// PlainTextLoops: the states of an automaton from which the state after a text
// of plain characters depends on its length alone, as inside a JSON string. All
// tokens of such characters and one length are legal there or none, so they
// need not be walked one by one.
//
// A plain character is a printable ASCII character other than '"' and '\', or
// any one beyond ASCII. Characters are in groups, each a bit: [a-f], [g-z],
// [A-F], [G-Z], [0-9], those beyond ASCII, and each of the others.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace espalier {

struct PlainText {
  // Characters of a plain token; longer ones are not counted as plain.
  static constexpr int kMaxChars = 24;
  static constexpr int kBeyondAscii = 5;
  static constexpr int kNumGroups = 39;

  static constexpr bool IsPlainAscii(uint8_t byte) {
    return byte >= ' ' && byte < 0x7F && byte != '"' && byte != '\\';
  }
  // REQUIRES: plain, or beyond ASCII.
  static constexpr int GroupOf(uint8_t byte) {
    if (byte >= 'a' && byte <= 'z') return byte <= 'f' ? 0 : 1;
    if (byte >= 'A' && byte <= 'Z') return byte <= 'F' ? 2 : 3;
    if (byte >= '0' && byte <= '9') return 4;
    if (byte >= 0x80) return kBeyondAscii;
    // ' ' to '/' are 16 characters, ':' to '@' 7, '[' to '`' 6, and '{' to '~'
    // the last 4: each range comes after the 16, 16 + 7 or 16 + 7 + 6 before.
    const int base = byte <= '/'   ? ' '
                     : byte <= '@' ? ':' - 16
                     : byte <= '`' ? '[' - (16 + 7)
                                   : '{' - (16 + 7 + 6);
    return kBeyondAscii + 1 + byte - base;
  }
  static constexpr uint64_t BitOf(uint8_t byte) {
    return uint64_t{1} << GroupOf(byte);
  }
};

//   Next  next(state, byte) returns the state after a byte; -1: there is none;
//         another negative number: it is not known
template <typename Next>
class PlainTextLoops {
 public:
  // The states after texts of 0, 1, 2, ... characters. The last one is that of
  // all longer texts, too, if `repeats`; else there are none.
  struct Chain {
    std::array<int32_t, PlainText::kMaxChars + 1> states = {};
    int count = 0;
    bool repeats = false;

    // True if all texts lead to one state.
    bool is_loop() const { return repeats && count == 1; }
    // Returns the state after a text; negative: there is none.
    int32_t StateAfter(int num_chars) const {
      if (num_chars < count) return states[num_chars];
      return repeats ? states[count - 1] : kNone;
    }
  };

  explicit PlainTextLoops(const Next& next) : next_(next) {}

  // Returns the states after texts of at most `num_chars` characters of these
  // groups; null if they do not depend on the length alone, or if a first
  // character of them may not follow, because then few may. Valid until the
  // next call.
  const Chain* Find(int32_t state, uint64_t groups, int num_chars) {
    chain_.states[0] = state;
    chain_.count = 1;
    chain_.repeats = false;
    if (num_chars > 0 && next_(state, FirstOf(groups)) < 0) return nullptr;
    for (int i = 0; i < num_chars && !chain_.repeats; ++i) {
      const int32_t next = NextByAny(state, groups);
      if (next == kMixed) return nullptr;
      if (next == kNone) break;
      chain_.repeats = next == state;
      if (!chain_.repeats) chain_.states[chain_.count++] = state = next;
    }
    return &chain_;
  }

 private:
  static constexpr int32_t kNone = -1;   // no character may follow
  static constexpr int32_t kMixed = -2;  // they lead to different states
  // Enough for the strings of a walk; further states have no loops.
  static constexpr int kMaxLoops = 128;
  static constexpr size_t kNumSlots = 2 * kMaxLoops;

  struct Loop {
    int32_t state = 0;
    int32_t next = kNone;  // after any character of `good`
    uint64_t known = 0;    // groups
    uint64_t good = 0;
    uint64_t dead = 0;  // none of these characters may follow
  };

  // Returns null if there are too many.
  Loop* LoopOf(int32_t state) {
    // Open addressing; half of the slots are free.
    for (size_t slot = static_cast<size_t>(state) * 31 % kNumSlots;;
         slot = (slot + 1) % kNumSlots) {
      if (slots_[slot] == 0) {
        if (num_loops_ == kMaxLoops) return nullptr;
        loops_[num_loops_] = {.state = state};
        slots_[slot] = static_cast<uint8_t>(++num_loops_);
        return &loops_[num_loops_ - 1];
      }
      Loop& loop = loops_[slots_[slot] - 1u];
      if (loop.state == state) return &loop;
    }
  }

  // Returns the state after a character of `groups`, or kNone or kMixed.
  int32_t NextByAny(int32_t state, uint64_t groups) {
    Loop* const loop = LoopOf(state);
    if (loop == nullptr) return kMixed;
    for (uint64_t left = groups & ~loop->known; left != 0; left &= left - 1) {
      const uint64_t known = groups & loop->known;
      if ((known & ~loop->good & ~loop->dead) != 0 ||
          ((known & loop->good) != 0 && (known & loop->dead) != 0)) {
        return kMixed;
      }
      const uint64_t group = left & -left;
      loop->known |= group;
      const int32_t next = NextByGroup(std::countr_zero(group), state);
      if (next == kNone) loop->dead |= group;
      if (next < 0) continue;
      if (loop->next < 0) loop->next = next;
      if (loop->next == next) loop->good |= group;
    }
    if ((groups & ~loop->good) == 0) return loop->next;
    return (groups & ~loop->dead) == 0 ? kNone : kMixed;
  }

  // A byte of the first group; of those beyond ASCII, one that begins some.
  static uint8_t FirstOf(uint64_t groups) {
    const auto group = static_cast<size_t>(std::countr_zero(groups));
    return group == PlainText::kBeyondAscii ? 0xC3 : kBytesOfGroups[group][0];
  }

  // Returns the state after any character of a group, or kNone or kMixed.
  int32_t NextByGroup(int group, int32_t state) {
    if (group == PlainText::kBeyondAscii) return NextBeyondAscii(state);
    int32_t common = kUnset;
    for (const uint8_t byte : kBytesOfGroups[static_cast<size_t>(group)]) {
      if (byte == 0) break;
      if (!Join(next_(state, byte), &common)) return kMixed;
    }
    return common;
  }
  static constexpr int32_t kUnset = -3;
  // Returns false if `next` is not known, or another state than those before.
  static bool Join(int32_t next, int32_t* common) {
    if (next < kNone) return false;
    if (*common == kUnset) *common = next;
    return *common == next;
  }

  // As UTF-8 has them (Unicode 15, table 3-7).
  int32_t NextBeyondAscii(int32_t state) {
    constexpr std::array<Lead, 8> kLeads = {{{0xC2, 0xDF, 0x80, 0xBF, 0},
                                             {0xE0, 0xE0, 0xA0, 0xBF, 1},
                                             {0xE1, 0xEC, 0x80, 0xBF, 1},
                                             {0xED, 0xED, 0x80, 0x9F, 1},
                                             {0xEE, 0xEF, 0x80, 0xBF, 1},
                                             {0xF0, 0xF0, 0x90, 0xBF, 2},
                                             {0xF1, 0xF3, 0x80, 0xBF, 2},
                                             {0xF4, 0xF4, 0x80, 0x8F, 2}}};
    int32_t common = kUnset;
    seen_.clear();
    for (const Lead& lead : kLeads) {
      for (int byte = lead.first; byte <= lead.last; ++byte) {
        const int32_t inner = next_(state, static_cast<uint8_t>(byte));
        if (!JoinTail(inner, lead.second_first, lead.second_last, lead.num_more,
                      &common)) {
          return kMixed;
        }
      }
    }
    return common;
  }

  struct Lead {
    int first;
    int last;
    int second_first;
    int second_last;
    int num_more;  // bytes after the second
  };
  struct Seen {
    int32_t state;
    int first;
    int last;
    int num_more;
    friend bool operator==(const Seen&, const Seen&) = default;
  };
  // Joins the states after all ends of a character.
  bool JoinTail(int32_t state, int first, int last, int num_more,
                int32_t* common) {
    if (state < 0) return Join(state, common);
    const Seen key = {state, first, last, num_more};
    if (std::ranges::find(seen_, key) != seen_.end()) return true;
    for (int byte = first; byte <= last; ++byte) {
      const int32_t next = next_(state, static_cast<uint8_t>(byte));
      if (!(num_more == 0 ? Join(next, common)
                          : JoinTail(next, 0x80, 0xBF, num_more - 1, common))) {
        return false;
      }
    }
    seen_.push_back(key);
    return true;
  }

  // By group; the rest of a row is 0.
  static constexpr auto kBytesOfGroups = [] {
    std::array<std::array<uint8_t, 21>, PlainText::kNumGroups> bytes = {};
    std::array<size_t, PlainText::kNumGroups> counts = {};
    for (uint8_t byte = ' '; byte < 0x7F; ++byte) {
      if (!PlainText::IsPlainAscii(byte)) continue;
      const auto group = static_cast<size_t>(PlainText::GroupOf(byte));
      bytes[group][counts[group]++] = byte;
    }
    return bytes;
  }();

  const Next& next_;
  std::array<Loop, kMaxLoops> loops_;  // the first num_loops_
  int num_loops_ = 0;
  std::array<uint8_t, kNumSlots> slots_ = {};  // numbers in loops_, from 1 on
  std::vector<Seen> seen_;
  Chain chain_;
};

}  // namespace espalier
