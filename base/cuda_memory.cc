#include "base/cuda_memory.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "base/cuda.h"

namespace espalier {
namespace {

std::string FormatBytes(int64_t bytes) {
  const double mib = static_cast<double>(bytes) / (1 << 20);
  return mib >= 1024 ? absl::StrFormat("%.2f GiB", mib / 1024)
                     : absl::StrFormat("%.1f MiB", mib);
}

std::string FormatKind(const char* kind, CudaMemoryParts parts,
                       bool is_pinned) {
  std::erase_if(parts, [&](const CudaMemoryPart& part) {
    return part.is_pinned != is_pinned || part.bytes == 0;
  });
  std::ranges::stable_sort(parts, std::greater(), &CudaMemoryPart::bytes);
  int64_t total = 0;
  std::string names;
  for (const CudaMemoryPart& part : parts) {
    names += Concat(total == 0 ? ": " : ", ", part.name, " ",
                    FormatBytes(part.bytes));
    total += part.bytes;
  }
  return Concat(kind, " memory ", FormatBytes(total), names);
}

}  // namespace

std::string FormatMemory(const CudaMemoryParts& parts) {
  return FormatKind("device", parts, false) + "; " +
         FormatKind("pinned", parts, true);
}

absl::Status cuda_internal::NameMemory(const absl::Status& error,
                                       const char* what) {
  return Annotate(error, what);
}

absl::Status CheckFreeDeviceMemory(const char* what, size_t bytes) {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  RETURN_IF_CUDA_ERROR(cudaMemGetInfo(&free_bytes, &total_bytes));
  if (bytes <= free_bytes) return absl::OkStatus();
  return ResourceExhausted(what, " needs ", bytes, " bytes of device memory, ",
                           free_bytes, " of ", total_bytes, " are free");
}

absl::StatusOr<DeviceBuffer<std::byte>> ZeroedDeviceMemory(const char* what,
                                                           size_t bytes) {
  ASSIGN_OR_RETURN(auto buffer, TakeDeviceMemory<std::byte>(what, bytes));
  RETURN_IF_CUDA_ERROR(cudaMemset(buffer.data(), 0, bytes));
  return buffer;
}

}  // namespace espalier
