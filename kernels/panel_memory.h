// PanelMemory: memory for packed weights. It is not cleared, so that the
// threads that fill it touch it first. Much of it is on huge pages, if the
// system has them: a step reads all of it, and with 4 KiB pages each page would
// miss the TLB and stop the hardware prefetcher.
//
// PanelArena: allocates the memory of a model's smaller matrices from shared
// blocks, so that they are on huge pages too, in order of allocation.
//
//   PanelArena arena(total_bytes);
//   PanelMemory first = arena.Allocate(200'000);  // outlives it
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace espalier {

class PanelMemory {
 public:
  PanelMemory() = default;
  PanelMemory(PanelMemory&&) = default;
  PanelMemory& operator=(PanelMemory&&) = default;
  PanelMemory(const PanelMemory&) = delete;
  PanelMemory& operator=(const PanelMemory&) = delete;
  // Aligned to a cache line. Throws std::bad_alloc.
  explicit PanelMemory(size_t num_bytes);

  std::byte* data() { return bytes_.get(); }
  const std::byte* data() const { return bytes_.get(); }

 private:
  friend class PanelArena;
  explicit PanelMemory(std::shared_ptr<std::byte> bytes)
      : bytes_(std::move(bytes)) {}

  std::shared_ptr<std::byte> bytes_;  // in an arena, keeps its block
};

// Thread safety: one thread at a time. A block lives as long as any memory in
// it.
class PanelArena {
 public:
  // `num_bytes` is the expected total. It bounds the size of a block, in whole
  // huge pages.
  explicit PanelArena(size_t num_bytes);

  // Aligned to a cache line. Throws std::bad_alloc.
  PanelMemory Allocate(size_t num_bytes);

 private:
  const size_t block_bytes_;
  std::shared_ptr<std::byte> block_;
  size_t num_left_ = 0;  // bytes at the end of the block
};

}  // namespace espalier
