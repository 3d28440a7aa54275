// What --device cuda is in a build for the CPU alone.
#include "base/status.h"
#include "examples/cli/backend.h"

namespace espalier::cli {

absl::StatusOr<std::unique_ptr<Backend>> LoadCudaBackend(
    const std::string&, const BackendOptions&) {
  return FailedPrecondition(
      "--device cuda: this program was built for the CPU alone; preset cuda "
      "builds it for NVIDIA GPUs too (cmake --preset cuda, which needs nvcc), "
      "and --device cpu works everywhere");
}

}  // namespace espalier::cli
