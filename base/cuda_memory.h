// Memory that is taken once and named: what a model and its executor hold on
// the device and in pinned memory of the host, and for what.
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
  bool is_pinned = false;  // of the host; else of the device
};
using CudaMemoryParts = std::vector<CudaMemoryPart>;

// "device memory 4.31 GiB: keys and values 4.00 GiB, weights 16.9 MiB, ...;
// pinned memory 52.1 MiB: answers ...", largest first.
std::string FormatMemory(const CudaMemoryParts& parts);

// Errors: kResourceExhausted, with `what` and the figures a user can act on, if
// the device has fewer bytes free.
absl::Status CheckFreeDeviceMemory(const char* what, size_t bytes);

namespace cuda_internal {
// The same error with `what` before its message.
absl::Status NameMemory(const absl::Status& error, const char* what);
}  // namespace cuda_internal

// Device memory, not initialised. Errors: kResourceExhausted, naming `what`.
template <typename T>
absl::StatusOr<DeviceBuffer<T>> TakeDeviceMemory(const char* what,
                                                 size_t size) {
  const absl::Status has_room = CheckFreeDeviceMemory(what, size * sizeof(T));
  if (!has_room.ok()) return has_room;
  auto buffer = DeviceBuffer<T>::Create(size);
  if (!buffer.ok()) return cuda_internal::NameMemory(buffer.status(), what);
  return buffer;
}

// Zeroed device memory, so that nothing that was never written can be NaN.
absl::StatusOr<DeviceBuffer<std::byte>> ZeroedDeviceMemory(const char* what,
                                                           size_t bytes);

}  // namespace espalier
