// Wrappers of the CUDA runtime: one function that converts errors to statuses,
// and RAII owners of device memory, streams, events and graphs. Plain C++
// without kernels or <<<>>>, which are in base/cuda_launch.cuh. Pinned host
// memory is in base/cuda_pinned_memory.h. Public headers include this
// (espalier/cuda.h), so it leaves no macros behind; they are in base/cuda.h.
//
//   absl::StatusOr<CudaDevice> device = CudaDevice::Open(0);
//   absl::StatusOr<CudaStream> stream = CudaStream::Create();
//   absl::StatusOr<DeviceBuffer<float>> x = DeviceBuffer<float>::Create(1024);
//
// Compiled only where ESPALIER_CUDA is on.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace espalier {

// Converts `error`, returned by `call`, to a status: kResourceExhausted if out
// of memory, kFailedPrecondition without a usable device or driver, otherwise
// kInternal with the call's name. Clears the error if possible.
absl::Status CudaStatus(cudaError_t error, const char* call);

// A usable device; a plain value. Opening it makes it the calling thread's
// current device.
struct CudaDevice {
  int ordinal = 0;
  std::string name;
  int num_sms = 0;
  int compute_capability = 0;  // 90 for 9.0
  int64_t l2_bytes = 0;
  int64_t total_bytes = 0;  // device memory
  // Peak memory bandwidth, from clock and bus width; 0: not known.
  double memory_bytes_per_second = 0;
  int max_shared_bytes = 0;  // maximum dynamic shared memory of a block

  // Errors: kFailedPrecondition, naming the missing part (driver, device, or a
  // capability of at least 8.0), and that device cpu works everywhere.
  static absl::StatusOr<CudaDevice> Open(int ordinal);
};

namespace cuda_internal {

struct FreeDevice {
  void operator()(void* memory) const { cudaFree(memory); }
};
absl::StatusOr<void*> AllocateDevice(size_t bytes);

}  // namespace cuda_internal

// Device memory for `size` elements, not initialised. Move-only.
template <typename T>
class DeviceBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  DeviceBuffer() = default;
  // Errors: kResourceExhausted, naming the bytes.
  static absl::StatusOr<DeviceBuffer> Create(size_t size) {
    DeviceBuffer buffer;
    buffer.size_ = size;
    if (size == 0) return buffer;
    const absl::StatusOr<void*> memory =
        cuda_internal::AllocateDevice(size * sizeof(T));
    if (!memory.ok()) return memory.status();
    buffer.memory_.reset(static_cast<T*>(*memory));
    return buffer;
  }

  T* data() const { return memory_.get(); }
  size_t size() const { return size_; }
  size_t size_bytes() const { return size_ * sizeof(T); }

 private:
  std::unique_ptr<T, cuda_internal::FreeDevice> memory_;
  size_t size_ = 0;
};

// Owners of the runtime's handles; get() returns the handle.
#define ESPALIER_CUDA_HANDLE(Name, Handle, Destroy)               \
  class Name {                                                    \
   public:                                                        \
    Name() = default;                                             \
    explicit Name(Handle handle) : handle_(handle) {}             \
    Name(Name&& other) noexcept                                   \
        : handle_(std::exchange(other.handle_, nullptr)) {}       \
    Name& operator=(Name&& other) noexcept {                      \
      std::swap(handle_, other.handle_);                          \
      return *this;                                               \
    }                                                             \
    ~Name() {                                                     \
      if (handle_ != nullptr) Destroy(handle_);                   \
    }                                                             \
    Handle get() const { return handle_; }                        \
    explicit operator bool() const { return handle_ != nullptr; } \
    static absl::StatusOr<Name> Create();                         \
                                                                  \
   private:                                                       \
    Handle handle_ = nullptr;                                     \
  }

// A stream that does not synchronise with the default one.
ESPALIER_CUDA_HANDLE(CudaStream, cudaStream_t, cudaStreamDestroy);
// An event with time stamps.
ESPALIER_CUDA_HANDLE(CudaEvent, cudaEvent_t, cudaEventDestroy);
// An executable graph, created by CaptureGraph.
ESPALIER_CUDA_HANDLE(CudaGraph, cudaGraphExec_t, cudaGraphExecDestroy);
#undef ESPALIER_CUDA_HANDLE

// A stream capture, which ends with the lifetime of this.
class CudaCapture {
 public:
  explicit CudaCapture(cudaStream_t stream) : stream_(stream) {}
  CudaCapture(const CudaCapture&) = delete;
  CudaCapture& operator=(const CudaCapture&) = delete;
  ~CudaCapture();

  absl::Status Begin();
  // Ends the capture and returns the executable graph, which is uploaded.
  absl::StatusOr<CudaGraph> End();

 private:
  const cudaStream_t stream_;
  bool is_open_ = false;
};

// Captures the work that `enqueue` (a callable that returns absl::Status)
// enqueues on `stream`, without running it.
// Errors: those of `enqueue`; kResourceExhausted if memory runs out; kInternal
// if the work cannot be captured.
template <typename Enqueue>
absl::StatusOr<CudaGraph> CaptureGraph(cudaStream_t stream,
                                       const Enqueue& enqueue) {
  CudaCapture capture(stream);
  if (absl::Status begun = capture.Begin(); !begun.ok()) return begun;
  if (absl::Status enqueued = enqueue(); !enqueued.ok()) return enqueued;
  return capture.End();
}

}  // namespace espalier
