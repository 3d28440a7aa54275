// Device cuda in a build for the CPU only.
#include "base/field_error.h"
#include "espalier/backend.h"

namespace espalier {

absl::StatusOr<std::unique_ptr<Backend>> LoadCudaBackend(
    const std::string&, const BackendOptions&) {
  return MakeFieldError(
      absl::StatusCode::kFailedPrecondition, OptionName{"device"},
      " cuda: this build is for the CPU alone; preset cuda builds for "
      "NVIDIA GPUs too (cmake --preset cuda, which needs nvcc), and device cpu "
      "works everywhere");
}

bool HasCudaDevice(int) { return false; }

bool IsBuiltWithCuda() { return false; }

}  // namespace espalier
