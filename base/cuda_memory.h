// Named long-lived allocations: the device memory and pinned host memory of a
// model and its executor, by purpose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/cuda_resources.h"

namespace espalier {

struct CudaMemoryPart {
  std::string name;
  int64_t bytes = 0;
  bool is_pinned = false;  // pinned host memory; false: device memory
};
using CudaMemoryParts = std::vector<CudaMemoryPart>;

// Returns "device memory 4.31 GiB: keys and values 4.00 GiB, weights 16.9 MiB,
// ...; pinned memory 52.1 MiB: answers ...", largest first.
std::string FormatMemory(const CudaMemoryParts& parts);

// Checks that the device has `bytes` bytes free.
// Errors: kResourceExhausted, with `what` and the sizes, if it has fewer.
absl::Status CheckFreeDeviceMemory(const char* what, size_t bytes);

namespace cuda_internal {
// Returns the error with `what` before its message.
absl::Status NameMemory(const absl::Status& error, const char* what);
}  // namespace cuda_internal

// Allocates uninitialised device memory.
// Errors: kResourceExhausted, naming `what`.
template <typename T>
absl::StatusOr<DeviceBuffer<T>> TakeDeviceMemory(const char* what,
                                                 size_t size) {
  const absl::Status has_room = CheckFreeDeviceMemory(what, size * sizeof(T));
  if (!has_room.ok()) return has_room;
  auto buffer = DeviceBuffer<T>::Create(size);
  if (!buffer.ok()) return cuda_internal::NameMemory(buffer.status(), what);
  return buffer;
}

// Allocates zeroed device memory, so that memory never written is not NaN.
absl::StatusOr<DeviceBuffer<std::byte>> ZeroedDeviceMemory(const char* what,
                                                           size_t bytes);

}  // namespace espalier
