// CudaItemTries: the tries of catalogues in device memory, one for each version
// of a catalogue, whichever requests use it. A trie stays as long as its
// catalogue, unless another one needs its memory.
//
// Thread safety: plain state, of one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/item_tables.h"
#include "kernels/constrain/cuda_item_tables.h"

namespace espalier {

class CudaItemTries {
 public:
  // Returns the copy of a trie, made at the first call; `owner` owns `trie`. If
  // there is no memory for it, tries that only this object has are dropped.
  // Errors: kResourceExhausted; else as base/cuda.h.
  absl::StatusOr<std::shared_ptr<const CudaItemTrie>> Find(
      const ItemTrie& trie, const std::shared_ptr<const void>& owner);

  // Drops those of catalogues that are gone. REQUIRES: no step that runs reads
  // a trie that only this object has.
  void DropGone();

  int64_t num_bytes() const;

 private:
  struct Entry {
    std::weak_ptr<const void> owner;
    const TokenId* tokens = nullptr;  // that the trie has on the host
    std::shared_ptr<const CudaItemTrie> copy;
  };

  std::vector<Entry> entries_;
};

}  // namespace espalier
