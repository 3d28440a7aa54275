#include "base/cuda_launch.h"

#include <map>
#include <utility>

#include "base/status.h"

namespace espalier::cuda_internal {
namespace {

// A few hundred kernels, a stream or two.
thread_local std::map<std::pair<int, const void*>, int> capabilities;
thread_local std::map<cudaStream_t, GridDependencyOrder> orders;

}  // namespace

int CompiledCapability(const void* kernel) {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) {
    cudaGetLastError();  // which clears it
    return 0;
  }
  const std::pair key(device, kernel);
  const auto known = capabilities.find(key);
  if (known != capabilities.end()) return known->second;
  cudaFuncAttributes attributes = {};
  if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess) {
    cudaGetLastError();  // cleared: the launch itself reports the error
    return 0;
  }
  // ptxVersion is the capability of the PTX that the code was compiled from,
  // whether by nvcc or by the driver. binaryVersion would be the device's.
  return capabilities[key] = attributes.ptxVersion;
}

absl::Status CheckLaunch(cudaStream_t stream, GridDependency dependency,
                         int cluster, int capability) {
  if (cluster > 1 && capability < 90) {
    return Internal("a launch of clusters of ", cluster,
                    " blocks, of a kernel compiled for capability ",
                    capability / 10, ".", capability % 10, " without them");
  }
  if (stream == nullptr) return absl::OkStatus();
  return orders[stream].Add(dependency);
}

void ForgetStream(cudaStream_t stream) { orders.erase(stream); }

}  // namespace espalier::cuda_internal
