#include "executor/cuda/batch/cuda_item_tries.h"

#include <utility>

#include "base/status.h"

namespace espalier {

absl::StatusOr<std::shared_ptr<const CudaItemTrie>> CudaItemTries::Find(
    const ItemTrie& trie, const std::shared_ptr<const void>& owner) {
  for (const Entry& entry : entries_) {
    // An array may be where that of a catalogue was that is gone.
    if (entry.tokens == trie.tokens && entry.owner.lock() == owner) {
      return entry.copy;
    }
  }
  absl::StatusOr<CudaItemTrie> copy = CudaItemTrie::Create(trie);
  if (absl::IsResourceExhausted(copy.status())) {
    std::erase_if(entries_, [](const Entry& entry) {
      return entry.copy.use_count() == 1;
    });
    copy = CudaItemTrie::Create(trie);
  }
  RETURN_IF_ERROR(copy.status());
  entries_.push_back(
      {.owner = owner,
       .tokens = trie.tokens,
       .copy = std::make_shared<const CudaItemTrie>(*std::move(copy))});
  return entries_.back().copy;
}

void CudaItemTries::DropGone() {
  std::erase_if(entries_, [](const Entry& entry) {
    return entry.owner.expired() && entry.copy.use_count() == 1;
  });
}

int64_t CudaItemTries::num_bytes() const {
  int64_t sum = 0;
  for (const Entry& entry : entries_) sum += entry.copy->num_bytes();
  return sum;
}

}  // namespace espalier
