// The CUDA runtime (cuda_resources.h), and macros that propagate its errors.
//
//   ASSIGN_OR_RETURN(const CudaDevice device, CudaDevice::Open(0));
//   ASSIGN_OR_RETURN(CudaStream stream, CudaStream::Create());
//   ASSIGN_OR_RETURN(auto x, DeviceBuffer<float>::Create(1024));
//   RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(x.data(), ...));
//
// Not for public headers, since the macros have no prefix.
#pragma once

#include "base/cuda_resources.h"
#include "base/status.h"

#define RETURN_IF_CUDA_ERROR(call) \
  RETURN_IF_ERROR(::espalier::CudaStatus((call), #call))
