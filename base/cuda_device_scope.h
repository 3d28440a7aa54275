// CudaDeviceScope: a device as the calling thread's current one, for as long as
// this lives; then the thread has again the one it had. What enters a part of
// the code that uses CUDA opens one for its own device, and relies neither on
// the thread's nor on device 0:
//
//   ASSIGN_OR_RETURN(const CudaDeviceScope scope,
//                    CudaDeviceScope::Enter(device.ordinal));
//
// Costs some tens of nanoseconds where the device is the current one already.
#pragma once

#include <utility>

#include "absl/status/statusor.h"

namespace espalier {

class CudaDeviceScope {
 public:
  // Errors: as base/cuda.h; the thread's device is what it was then.
  static absl::StatusOr<CudaDeviceScope> Enter(int ordinal);
  // For destructors, which cannot fail: where the device cannot be entered
  // nothing on it can be freed either, and the thread stays where it is.
  static CudaDeviceScope EnterIfPossible(int ordinal);

  CudaDeviceScope(CudaDeviceScope&& other) noexcept
      : previous_(std::exchange(other.previous_, kSame)) {}
  CudaDeviceScope& operator=(CudaDeviceScope&&) = delete;
  ~CudaDeviceScope();

 private:
  static constexpr int kSame = -1;

  explicit CudaDeviceScope(int previous) : previous_(previous) {}

  int previous_;  // to go back to; kSame: nothing has changed
};

}  // namespace espalier
