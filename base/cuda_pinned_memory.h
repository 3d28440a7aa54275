// PinnedBuffer: host memory that the device reads and writes in place.
//
// cudaHostAlloc takes 350 ms or more for 1 GiB, and 90 ms to free it.
// cudaHostRegister takes 65 ms for huge pages of the process that several
// threads have touched, and 50 ms to free them (16 cores, NVIDIA H100). This
// dominates program start, so large memory is allocated the second way, where
// the system and the memory limit of the process's cgroup have room for it.
//
// Compiled only where ESPALIER_CUDA is on.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/status/statusor.h"

namespace espalier {

namespace cuda_internal {

struct FreePinned {
  // Size of memory that was allocated by the process and pinned by
  // cudaHostRegister; 0: memory of cudaHostAlloc.
  size_t registered_bytes = 0;
  void operator()(void* memory) const;
};
using PinnedMemory = std::unique_ptr<void, FreePinned>;
// Errors: kResourceExhausted, naming the bytes; kInternal if the runtime fails.
absl::StatusOr<PinnedMemory> AllocatePinned(size_t bytes);

}  // namespace cuda_internal

// Host memory that the device can read and write in place (data() is valid on
// both sides). Zeroed. Move-only.
template <typename T>
class PinnedBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  PinnedBuffer() = default;
  // Errors: kResourceExhausted, naming the bytes.
  static absl::StatusOr<PinnedBuffer> Create(size_t size) {
    PinnedBuffer buffer;
    buffer.size_ = size;
    if (size == 0) return buffer;
    absl::StatusOr<cuda_internal::PinnedMemory> memory =
        cuda_internal::AllocatePinned(size * sizeof(T));
    if (!memory.ok()) return memory.status();
    buffer.memory_ = *std::move(memory);
    return buffer;
  }

  T* data() const { return static_cast<T*>(memory_.get()); }
  T& operator[](size_t i) const { return data()[i]; }
  size_t size() const { return size_; }
  size_t size_bytes() const { return size_ * sizeof(T); }

 private:
  cuda_internal::PinnedMemory memory_;
  size_t size_ = 0;
};

}  // namespace espalier
