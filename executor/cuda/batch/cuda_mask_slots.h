// CudaMaskSlots: places for token masks in device memory, and the mask that
// each has. A mask that an earlier step made is not made again: the states of
// constraints recur, and most differ from step to step in a few rows only. The
// least recently used mask makes room for a new one.
//
// Masks are told apart by the list of legal tokens that they are the bits of
// (Constraint::LegalTokens), which is one for all states and rooms with the
// same tokens.
//
// Thread safety: plain state, of one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>

#include "base/ids.h"

namespace espalier {

class CudaMaskSlots {
 public:
  // A list of a constraint.
  struct Key {
    int64_t constraint = 0;  // serial number
    const TokenId* list = nullptr;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Slot {
    int index = 0;
    bool is_new = false;  // its mask is still to be made
  };

  // REQUIRES: num_slots is at least the number of masks of a step.
  explicit CudaMaskSlots(int num_slots) : num_slots_(num_slots) {}

  // Returns the slot of a list's mask. Slots that a step has taken keep their
  // masks for this step.
  Slot Take(const Key& key);
  // Forgets all masks: the device may not have made the last ones.
  void Clear();

 private:
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  struct Entry {
    Key key;
    int index = 0;
  };

  const int num_slots_;
  std::list<Entry> entries_;  // last used first
  std::unordered_map<Key, std::list<Entry>::iterator, KeyHash> by_key_;
};

}  // namespace espalier
