#include "kernels/panel_memory.h"

#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace espalier {
namespace {

constexpr size_t kCacheLineBytes = 64;
constexpr size_t kHugePage = size_t{2} << 20;
// From here on the part of a page at the end is small against the rest.
constexpr size_t kMinHugeBytes = 2 * kHugePage;

}  // namespace

PanelMemory::PanelMemory(size_t num_bytes) {
  const size_t alignment =
      num_bytes >= kMinHugeBytes ? kHugePage : kCacheLineBytes;
  auto* bytes = static_cast<std::byte*>(
      ::operator new (num_bytes, std::align_val_t{alignment}));
  bytes_ = {bytes, Free{alignment}};
#if defined(__linux__)
  if (alignment == kHugePage) {
    // Where the system refuses, small pages do.
    madvise(bytes, num_bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  }
#endif
}

void PanelMemory::Free::operator()(std::byte* bytes) const {
  ::operator delete (bytes, std::align_val_t{alignment});
}

}  // namespace espalier
