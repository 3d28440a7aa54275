// CudaDeviceScope: makes a device the calling thread's current one for its
// lifetime, then restores the previous one. Every entry point into code that
// uses CUDA opens one for its own device, and relies neither on the thread's
// current device nor on device 0:
//
//   ASSIGN_OR_RETURN(const CudaDeviceScope scope,
//                    CudaDeviceScope::Enter(device.ordinal));
//
// Costs some tens of nanoseconds if the device is already current.
#pragma once

#include <utility>

#include "absl/status/statusor.h"

namespace espalier {

class CudaDeviceScope {
 public:
  // Errors: as base/cuda.h; the thread's device is then unchanged.
  static absl::StatusOr<CudaDeviceScope> Enter(int ordinal);
  // For destructors, which cannot fail. If the device cannot be entered, the
  // thread's device does not change; nothing on that device can be freed then.
  static CudaDeviceScope EnterIfPossible(int ordinal);

  CudaDeviceScope(CudaDeviceScope&& other) noexcept
      : previous_(std::exchange(other.previous_, kSame)) {}
  CudaDeviceScope& operator=(CudaDeviceScope&&) = delete;
  ~CudaDeviceScope();

 private:
  static constexpr int kSame = -1;

  explicit CudaDeviceScope(int previous) : previous_(previous) {}

  int previous_;  // device to restore; kSame: unchanged
};

}  // namespace espalier
