#include "tests/cuda_dry_run.h"

#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "absl/base/thread_annotations.h"

namespace espalier::testing {
namespace {

thread_local int current_device = 0;

// Executors launch on threads of their own.
std::mutex mutex;
int compiled_capability ABSL_GUARDED_BY(mutex) = 90;
uintptr_t next_address ABSL_GUARDED_BY(mutex) = 0x1000;
std::vector<DryLaunch> launches ABSL_GUARDED_BY(mutex);
std::set<int> devices ABSL_GUARDED_BY(mutex);
// Calls until one fails; negative: none does.
int num_good_left ABSL_GUARDED_BY(mutex) = -1;
cudaError_t failure ABSL_GUARDED_BY(mutex) = cudaSuccess;
bool has_failed ABSL_GUARDED_BY(mutex) = false;

// Result of a call that may fail.
cudaError_t Outcome() {
  const std::lock_guard lock(mutex);
  if (num_good_left < 0 || num_good_left-- > 0) return cudaSuccess;
  has_failed = true;
  return failure;
}

// Records the thread's current device.
cudaError_t UseDevice() {
  const std::lock_guard lock(mutex);
  devices.insert(current_device);
  return cudaSuccess;
}

template <typename Handle>
cudaError_t MakeHandle(Handle* handle) {
  const std::lock_guard lock(mutex);
  devices.insert(current_device);
  next_address += 0x1000;
  *handle = reinterpret_cast<Handle>(next_address);
  return cudaSuccess;
}

}  // namespace

cudaStream_t BeginDryRun(int capability) {
  const std::lock_guard lock(mutex);
  compiled_capability = capability;
  launches.clear();
  devices.clear();
  next_address += 0x1000;
  return reinterpret_cast<cudaStream_t>(next_address);
}

std::vector<DryLaunch> TakeDryLaunches() {
  const std::lock_guard lock(mutex);
  return std::exchange(launches, {});
}

void FailDryCall(int num_good, cudaError_t error) {
  const std::lock_guard lock(mutex);
  num_good_left = num_good;
  failure = error;
  has_failed = false;
}

bool HasDryCallFailed() {
  const std::lock_guard lock(mutex);
  return has_failed;
}

std::set<int> TakeDryDevices() {
  const std::lock_guard lock(mutex);
  return std::exchange(devices, {});
}

extern "C" {

// NOLINTBEGIN: the linker gives these their names.
cudaError_t __wrap_cudaMalloc(void** memory, size_t) {
  if (const cudaError_t error = Outcome(); error != cudaSuccess) return error;
  return MakeHandle(memory);
}
cudaError_t __wrap_cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  if (const cudaError_t error = Outcome(); error != cudaSuccess) return error;
  *memory = std::malloc(bytes);
  return *memory == nullptr ? cudaErrorMemoryAllocation : UseDevice();
}
cudaError_t __wrap_cudaFreeHost(void* memory) {
  std::free(memory);
  return UseDevice();
}
cudaError_t __wrap_cudaHostRegister(void*, size_t, unsigned) {
  if (const cudaError_t error = Outcome(); error != cudaSuccess) return error;
  return UseDevice();
}
cudaError_t __wrap_cudaHostUnregister(void*) { return UseDevice(); }
cudaError_t __wrap_cudaHostGetDevicePointer(void** on_device, void* memory,
                                            unsigned) {
  *on_device = memory;
  return cudaSuccess;
}
cudaError_t __wrap_cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return MakeHandle(stream);
}
cudaError_t __wrap_cudaStreamDestroy(cudaStream_t) { return UseDevice(); }
cudaError_t __wrap_cudaEventCreate(cudaEvent_t* event) {
  return MakeHandle(event);
}
cudaError_t __wrap_cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) {
  *ms = 1;
  return cudaSuccess;
}
cudaError_t __wrap_cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  return Outcome();
}
cudaError_t __wrap_cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return MakeHandle(event);
}
cudaError_t __wrap_cudaEventDestroy(cudaEvent_t) { return UseDevice(); }
cudaError_t __wrap_cudaEventRecord(cudaEvent_t, cudaStream_t) {
  if (const cudaError_t error = Outcome(); error != cudaSuccess) return error;
  return UseDevice();
}
cudaError_t __wrap_cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t __wrap_cudaEventSynchronize(cudaEvent_t) { return Outcome(); }
cudaError_t __wrap_cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = *total_bytes = size_t{1} << 40;
  return cudaSuccess;
}
cudaError_t __wrap_cudaFree(void*) { return UseDevice(); }
cudaError_t __wrap_cudaMemset(void*, int, size_t) {
  if (const cudaError_t error = Outcome(); error != cudaSuccess) return error;
  return UseDevice();
}
cudaError_t __wrap_cudaMemsetAsync(void*, int, size_t, cudaStream_t) {
  if (const cudaError_t error = Outcome(); error != cudaSuccess) return error;
  return UseDevice();
}
cudaError_t __wrap_cudaMemcpy(void*, const void*, size_t, cudaMemcpyKind) {
  return Outcome();
}
cudaError_t __wrap_cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind,
                                   cudaStream_t) {
  return Outcome();
}
cudaError_t __wrap_cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t __wrap_cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t __wrap_cudaSetDevice(int device) {
  current_device = device;
  return cudaSuccess;
}
cudaError_t __wrap_cudaFuncGetAttributes(cudaFuncAttributes* attributes,
                                         const void*) {
  const std::lock_guard lock(mutex);
  *attributes = {};
  attributes->ptxVersion = compiled_capability;
  attributes->sharedSizeBytes = compiled_capability >= 90 ? 1 : 0;
  return cudaSuccess;
}
// The driver's functions have an address, and are not called.
cudaError_t __wrap_cudaGetDriverEntryPointByVersion(
    const char*, void** function, unsigned, unsigned long long,
    cudaDriverEntryPointQueryResult* result) {
  *result = cudaDriverEntryPointSuccess;
  return MakeHandle(function);
}
cudaError_t __wrap_cudaGetDriverEntryPoint(
    const char*, void** function, unsigned long long,
    cudaDriverEntryPointQueryResult* result) {
  *result = cudaDriverEntryPointSuccess;
  return MakeHandle(function);
}
cudaError_t __wrap_cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  return UseDevice();
}
// As a device would where the launch is allowed, also of code without clusters.
cudaError_t __wrap_cudaOccupancyMaxActiveClusters(int* num_clusters,
                                                  const void*,
                                                  const cudaLaunchConfig_t*) {
  *num_clusters = 16;
  return cudaSuccess;
}
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t* config,
                                       const void*, void**) {
  if (const cudaError_t error = Outcome(); error != cudaSuccess) return error;
  DryLaunch launch = {.grid = config->gridDim};
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization) {
      launch.starts_early =
          attribute.val.programmaticStreamSerializationAllowed != 0;
    } else if (attribute.id == cudaLaunchAttributeClusterDimension) {
      launch.cluster = static_cast<int>(attribute.val.clusterDim.x);
    }
  }
  const std::lock_guard lock(mutex);
  devices.insert(current_device);
  launches.push_back(launch);
  return cudaSuccess;
}
// NOLINTEND

}  // extern "C"

}  // namespace espalier::testing
