// PanelMemory: memory for packed weights. It is not cleared, so that those who
// fill it are the first to touch it, each on a thread of its own; and much of
// it lies on huge pages, where the system has them: a step reads all of it, and
// would miss the TLB at every 4 KiB.
#pragma once

#include <cstddef>
#include <memory>

namespace espalier {

class PanelMemory {
 public:
  PanelMemory() = default;
  // Aligned to a cache line. Throws std::bad_alloc.
  explicit PanelMemory(size_t num_bytes);

  std::byte* data() { return bytes_.get(); }
  const std::byte* data() const { return bytes_.get(); }

 private:
  struct Free {
    void operator()(std::byte* bytes) const;
    size_t alignment;
  };
  std::unique_ptr<std::byte[], Free> bytes_;
};

}  // namespace espalier
