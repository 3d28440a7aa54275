// CudaListMasks: places for token masks that the host makes of lists of legal
// tokens, and the list that each has. The lists of a constraint recur, so the
// mask of a list that an earlier step sent is not sent again. The least
// recently used mask makes room for a new one.
//
// Thread safety: plain state, of one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "base/ids.h"

namespace espalier {

// Lists of up to so many tokens are edits of the rows instead: selection reads
// these tokens alone.
inline constexpr int kMaxListEdits = 256;

class CudaListMasks {
 public:
  struct Slot {
    int index = 0;
    bool is_new = false;  // its mask is still to be sent
  };

  // REQUIRES: num_slots is at least the number of masks of a step.
  explicit CudaListMasks(int num_slots) : num_slots_(num_slots) {}

  // Returns the slot of the mask of a list. Slots that a step has taken keep
  // their masks for this step.
  //   owner  keeps the list where it is; later another may be there
  Slot Take(const std::shared_ptr<const void>& owner,
            std::span<const TokenId> list);
  // Forgets all masks: the device may not have the last ones.
  void Clear();

 private:
  // The start of a list, and its length: another may start there.
  using Key = std::pair<const TokenId*, size_t>;
  struct Entry {
    std::weak_ptr<const void> owner;
    Key key;
    int index = 0;
  };

  const int num_slots_;
  std::list<Entry> entries_;  // last used first
  std::map<Key, std::list<Entry>::iterator> by_key_;
};

}  // namespace espalier
