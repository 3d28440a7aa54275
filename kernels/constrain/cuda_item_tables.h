// Copies of items in device memory (base/item_tables.h). Requests of one
// catalogue share its trie, 13.7 bytes an item of four random tokens; the rest
// is small unless a request excludes many.
//
// Move-only owners, of one thread.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "base/cuda_resources.h"
#include "base/item_tables.h"

namespace espalier {

class CudaItemTrie {
 public:
  // Copies the arrays. Returns when they are there.
  // Errors: kResourceExhausted; else as base/cuda.h.
  static absl::StatusOr<CudaItemTrie> Create(const ItemTrie& trie);

  // In device memory. `tokens` begins at a multiple of 16 bytes, and is
  // followed by as many.
  const ItemTrie& trie() const { return trie_; }
  int64_t num_bytes() const {
    return static_cast<int64_t>(bytes_.size_bytes());
  }

 private:
  DeviceBuffer<uint8_t> bytes_;
  ItemTrie trie_;
};

class CudaItemTables {
 public:
  // Copies the tables; `trie` is a copy of theirs.
  // Errors: kResourceExhausted; else as base/cuda.h.
  static absl::StatusOr<CudaItemTables> Create(
      const ItemTables& tables, std::shared_ptr<const CudaItemTrie> trie);

  // In device memory.
  const ItemTables& tables() const { return tables_; }
  // Without the trie.
  int64_t num_bytes() const {
    return static_cast<int64_t>(bytes_.size_bytes());
  }

 private:
  std::shared_ptr<const CudaItemTrie> trie_;
  DeviceBuffer<uint8_t> bytes_;
  ItemTables tables_;
};

}  // namespace espalier
