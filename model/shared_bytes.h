// SharedBytes: memory for tensors that a file does not have as a model needs
// them. It is a shared mapping, of which MappedFile::DropPages loses no bytes.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/statusor.h"

namespace espalier {

class SharedBytes {
 public:
  // Holds a copy of `parts`, one after the other.
  // Errors: kResourceExhausted naming the bytes if memory runs out.
  static absl::StatusOr<SharedBytes> CopyOf(
      std::span<const std::span<const std::byte>> parts);

  SharedBytes(SharedBytes&& other) noexcept;
  SharedBytes& operator=(SharedBytes&& other) noexcept;
  ~SharedBytes();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit SharedBytes(std::span<std::byte> bytes) : bytes_(bytes) {}

  std::span<std::byte> bytes_;
};

}  // namespace espalier
