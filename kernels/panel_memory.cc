#include "kernels/panel_memory.h"

#include <algorithm>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace espalier {
namespace {

constexpr size_t kCacheLineBytes = 64;
constexpr size_t kHugePage = size_t{2} << 20;
// From this size on the unused part of the last page is small.
constexpr size_t kMinHugeBytes = 2 * kHugePage;
// Maximum size of a block. Its unused part is never touched.
constexpr size_t kMaxBlockBytes = size_t{64} << 20;

size_t RoundUp(size_t num_bytes, size_t unit) {
  return (num_bytes + unit - 1) / unit * unit;
}

// Allocates whole huge pages if `is_huge` and the system has them.
std::shared_ptr<std::byte> AllocateBytes(size_t num_bytes, bool is_huge) {
  const std::align_val_t alignment{is_huge ? kHugePage : kCacheLineBytes};
  auto* bytes = static_cast<std::byte*>(::operator new(num_bytes, alignment));
  std::shared_ptr<std::byte> owner(
      bytes, [alignment](std::byte* p) { ::operator delete(p, alignment); });
#if defined(__linux__)
  if (is_huge) {
    // If the system refuses, small pages are used.
    madvise(bytes, num_bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  }
#endif
  return owner;
}

}  // namespace

PanelMemory::PanelMemory(size_t num_bytes)
    : bytes_(AllocateBytes(num_bytes, num_bytes >= kMinHugeBytes)) {}

// A total below half a huge page does not get one.
PanelArena::PanelArena(size_t num_bytes)
    : block_bytes_(
          num_bytes < kHugePage / 2
              ? 0
              : std::min(RoundUp(num_bytes, kHugePage), kMaxBlockBytes)) {}

PanelMemory PanelArena::Allocate(size_t num_bytes) {
  const size_t size = RoundUp(num_bytes, kCacheLineBytes);
  if (size == 0 || size >= kMinHugeBytes || size > block_bytes_) {
    return PanelMemory(num_bytes);
  }
  if (size > num_left_) {
    block_ = AllocateBytes(block_bytes_, /*is_huge=*/true);
    num_left_ = block_bytes_;
  }
  std::byte* const bytes = block_.get() + (block_bytes_ - num_left_);
  num_left_ -= size;
  return PanelMemory(std::shared_ptr<std::byte>(block_, bytes));
}

}  // namespace espalier
