#include "base/cuda.h"

#include "base/cuda_launch.h"

namespace espalier {

absl::Status CudaStatus(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();  // clears it, unless it is sticky
  const char* const what = cudaGetErrorString(error);
  switch (error) {
    case cudaErrorMemoryAllocation:
      return ResourceExhausted("not enough device memory: ", call);
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorSystemDriverMismatch:
      return FailedPrecondition("no usable CUDA device: ", what);
    default:
      return Internal(call, ": ", what);
  }
}

absl::StatusOr<CudaDevice> CudaDevice::Open(int ordinal) {
  constexpr char kInstead[] = "; device cpu works everywhere";
  int count = 0;
  // Without a driver this says that the driver is too old.
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted == cudaErrorInsufficientDriver || counted == cudaErrorNoDevice ||
      (counted == cudaSuccess && count == 0)) {
    cudaGetLastError();
    return FailedPrecondition(
        "no CUDA device: found no NVIDIA driver for CUDA ",
        CUDART_VERSION / 1000, " with a GPU", kInstead);
  }
  RETURN_IF_ERROR(CudaStatus(counted, "cudaGetDeviceCount"));
  if (ordinal < 0 || ordinal >= count) {
    return FailedPrecondition(
        "no CUDA device ", ordinal, ": ",
        count == 1 ? "the only one is 0" : Concat("there are 0 to ", count - 1),
        kInstead);
  }
  cudaDeviceProp properties;
  RETURN_IF_CUDA_ERROR(cudaGetDeviceProperties(&properties, ordinal));
  CudaDevice device;
  device.ordinal = ordinal;
  device.name = properties.name;
  device.num_sms = properties.multiProcessorCount;
  device.compute_capability = properties.major * 10 + properties.minor;
  device.l2_bytes = properties.l2CacheSize;
  device.total_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  device.max_shared_bytes = static_cast<int>(properties.sharedMemPerBlockOptin);
  int kilohertz = 0, bits = 0;
  RETURN_IF_CUDA_ERROR(
      cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, ordinal));
  RETURN_IF_CUDA_ERROR(
      cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, ordinal));
  device.memory_bytes_per_second = 2.0 * 1000 * kilohertz * bits / 8;
  if (device.compute_capability < 80) {
    return FailedPrecondition(
        "CUDA device ", ordinal, " (", device.name, ") has compute capability ",
        properties.major, ".", properties.minor, ", 8.0 is needed", kInstead);
  }
  RETURN_IF_CUDA_ERROR(cudaSetDevice(ordinal));
  return device;
}

namespace cuda_internal {

absl::StatusOr<void*> AllocateDevice(size_t bytes) {
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return ResourceExhausted("not enough device memory for ", bytes, " bytes");
  }
  RETURN_IF_ERROR(CudaStatus(error, "cudaMalloc"));
  return memory;
}

}  // namespace cuda_internal

absl::StatusOr<CudaStream> CudaStream::Create() {
  cudaStream_t stream = nullptr;
  RETURN_IF_CUDA_ERROR(
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cuda_internal::ForgetStream(stream);
  return CudaStream(stream);
}

absl::StatusOr<CudaEvent> CudaEvent::Create() {
  cudaEvent_t event = nullptr;
  RETURN_IF_CUDA_ERROR(cudaEventCreate(&event));
  return CudaEvent(event);
}

CudaCapture::~CudaCapture() {
  if (!is_open_) return;
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(stream_, &graph);
  if (graph != nullptr) cudaGraphDestroy(graph);
  cudaGetLastError();  // clears the error of a failed capture
}

absl::Status CudaCapture::Begin() {
  RETURN_IF_CUDA_ERROR(
      cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  is_open_ = true;
  return absl::OkStatus();
}

absl::StatusOr<CudaGraph> CudaCapture::End() {
  is_open_ = false;
  cudaGraph_t graph = nullptr;
  RETURN_IF_CUDA_ERROR(cudaStreamEndCapture(stream_, &graph));
  cudaGraphExec_t exec = nullptr;
  const cudaError_t made = cudaGraphInstantiate(&exec, graph, 0);
  cudaGraphDestroy(graph);
  RETURN_IF_ERROR(CudaStatus(made, "cudaGraphInstantiate"));
  CudaGraph captured(exec);
  RETURN_IF_CUDA_ERROR(cudaGraphUpload(exec, stream_));
  return captured;
}

}  // namespace espalier
