// Helpers of programs that time a GPU: uploads of arrays, and the median over
// replays of a graph of calls. An error ends the program.
//
//   const auto x = Get(Upload(std::vector<float>(n, 1.0f)));
//   const CudaGraph graph = Get(CaptureGraph(stream, [&] { ... }));
//   const double us = Get(MedianMicroseconds(graph, num_calls, stream));
#pragma once

#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/cuda.h"
#include "base/status.h"
#include "benchmarks/median.h"

namespace espalier {

inline void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", Message(status).c_str());
  std::exit(1);
}
inline void Check(cudaError_t error) {
  Check(CudaStatus(error, "a call of the benchmark"));
}
template <typename T>
T Get(absl::StatusOr<T> value) {
  Check(value.status());
  return *std::move(value);
}

template <typename T>
absl::StatusOr<DeviceBuffer<T>> Upload(const std::vector<T>& values) {
  ASSIGN_OR_RETURN(auto buffer, DeviceBuffer<T>::Create(values.size()));
  RETURN_IF_CUDA_ERROR(cudaMemcpy(buffer.data(), values.data(),
                                  buffer.size_bytes(), cudaMemcpyHostToDevice));
  // The copy may still be under way, and our streams do not wait for it.
  RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(nullptr));
  return buffer;
}

// Returns the median time of one of the `num_calls` calls that `graph` makes.
inline absl::StatusOr<float> MedianMicroseconds(const CudaGraph& graph,
                                                int num_calls,
                                                cudaStream_t stream) {
  constexpr int kWarmUps = 3, kReplays = 30;
  ASSIGN_OR_RETURN(const CudaEvent start, CudaEvent::Create());
  ASSIGN_OR_RETURN(const CudaEvent stop, CudaEvent::Create());
  std::vector<float> times;
  for (int i = 0; i < kWarmUps + kReplays; ++i) {
    RETURN_IF_CUDA_ERROR(cudaEventRecord(start.get(), stream));
    RETURN_IF_CUDA_ERROR(cudaGraphLaunch(graph.get(), stream));
    RETURN_IF_CUDA_ERROR(cudaEventRecord(stop.get(), stream));
    RETURN_IF_CUDA_ERROR(cudaEventSynchronize(stop.get()));
    float ms = 0;
    RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&ms, start.get(), stop.get()));
    if (i >= kWarmUps) times.push_back(ms * 1000 / num_calls);
  }
  return Median(std::move(times));
}

}  // namespace espalier
