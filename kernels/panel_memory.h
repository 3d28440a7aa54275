// PanelMemory: memory for packed weights. It is not cleared, so that those who
// fill it are the first to touch it, each on a thread of its own; and much of
// it lies on huge pages, where the system has them: a step reads all of it, and
// would miss the TLB at every 4 KiB, where the processor's prefetching ends,
// too.
//
// PanelArena: cuts the memory of a model's smaller matrices out of blocks that
// they share, so that these lie on huge pages as well, in the order in which
// they are asked for.
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

  std::shared_ptr<std::byte> bytes_;  // of an arena, keeps its block
};

// One thread at a time. Blocks live until the last memory of theirs is gone.
class PanelArena {
 public:
  // About so many bytes will be asked for in all: a block has at most so many,
  // in whole huge pages.
  explicit PanelArena(size_t num_bytes);

  // Aligned to a cache line. Throws std::bad_alloc.
  PanelMemory Allocate(size_t num_bytes);

 private:
  const size_t block_bytes_;
  std::shared_ptr<std::byte> block_;
  size_t num_left_ = 0;  // bytes at the end of the block
};

}  // namespace espalier
