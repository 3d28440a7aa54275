#include "model/shared_bytes.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace espalier {

absl::StatusOr<SharedBytes> SharedBytes::CopyOf(
    std::span<const std::span<const std::byte>> parts) {
  size_t num_bytes = 0;
  for (const std::span<const std::byte> part : parts) num_bytes += part.size();
  if (num_bytes == 0) return SharedBytes({});
  void* const data = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, /*fd=*/-1, 0);
  if (data == MAP_FAILED) {
    return ResourceExhausted("not enough memory for ", num_bytes,
                             " bytes of a tensor");
  }
  SharedBytes copy({static_cast<std::byte*>(data), num_bytes});
  auto to = copy.bytes_.begin();
  for (const std::span<const std::byte> part : parts) {
    to = std::copy(part.begin(), part.end(), to);
  }
  return copy;
}

SharedBytes::SharedBytes(SharedBytes&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})) {}

SharedBytes& SharedBytes::operator=(SharedBytes&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedBytes::~SharedBytes() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

}  // namespace espalier
