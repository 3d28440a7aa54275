// Timing of kernels that read rows of logits (cuda_replays.h): a graph of
// calls, each of which reads other logits, so that they come from memory and
// not from a cache (over 200 MB in turn).
//
//   const ColdLogits logits(num_rows * vocab_size, DType::kFloat32);
//   const float us = logits.Time(stream, [&](const void* of_call) {
//     return CudaSample(..., stream);
//   });
#pragma once

#include <algorithm>
#include <cstdlib>
#include <random>
#include <vector>

#include "base/cuda.h"
#include "base/dtype.h"
#include "benchmarks/cuda_replays.h"

namespace espalier {

// The sizes that the program's arguments name; all sizes without arguments.
class WantedSizes {
 public:
  WantedSizes(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) sizes_.push_back(std::atoi(argv[i]));
  }
  bool Has(int size) const {
    return sizes_.empty() || std::ranges::count(sizes_, size) > 0;
  }

 private:
  std::vector<int> sizes_;
};

// Normal(0, 3) logits of several calls; long ones repeat with a period of a few
// million.
class ColdLogits {
 public:
  // `call_size` of each call; if `equal`, all the same.
  ColdLogits(size_t call_size, DType dtype, bool equal = false)
      : dtype_(dtype), call_bytes_(call_size * NumBytes(dtype)) {
    constexpr size_t kColdBytes = size_t{220} << 20;
    constexpr size_t kMaxBuffers = 400;
    constexpr size_t kPeriod = 4'000'037;
    num_buffers_ = std::clamp<size_t>(
        (kColdBytes + call_bytes_ - 1) / call_bytes_, 1, kMaxBuffers);
    const size_t size = call_size * num_buffers_;
    bytes_ = Get(DeviceBuffer<char>::Create(size * NumBytes(dtype)));
    const std::vector<char> some = Some(std::min(size, kPeriod), dtype, equal);
    for (size_t at = 0; at < bytes_.size(); at += some.size()) {
      Check(cudaMemcpy(bytes_.data() + at, some.data(),
                       std::min(some.size(), bytes_.size() - at),
                       cudaMemcpyHostToDevice));
    }
  }

  size_t call_bytes() const { return call_bytes_; }

  // Microseconds of `enqueue(logits)`, the median over replays.
  template <typename Enqueue>
  float Time(cudaStream_t stream, const Enqueue& enqueue) const {
    const int num_calls = static_cast<int>(std::max<size_t>(num_buffers_, 4));
    const CudaGraph graph = Get(CaptureGraph(stream, [&]() -> absl::Status {
      for (int call = 0; call < num_calls; ++call) {
        RETURN_IF_ERROR(
            enqueue(bytes_.data() + call % num_buffers_ * call_bytes_));
      }
      return absl::OkStatus();
    }));
    return Get(MedianMicroseconds(graph, num_calls, stream));
  }

  // Makes a token likely, more or less, in every row of `vocab_size`.
  void MakeLikely(int token, int vocab_size) {
    const size_t width = NumBytes(dtype_), pitch = vocab_size * width;
    const size_t num_rows = bytes_.size() / pitch;
    std::mt19937 random(token);
    std::normal_distribution<float> logit(9, 2);
    std::vector<char> column;
    for (size_t i = 0; i < num_rows; ++i) {
      const float x = logit(random);
      const char* const end = reinterpret_cast<const char*>(&x + 1);
      column.insert(column.end(), end - width, end);
    }
    Check(cudaMemcpy2D(bytes_.data() + token * width, pitch, column.data(),
                       width, width, num_rows, cudaMemcpyHostToDevice));
  }

 private:
  static std::vector<char> Some(size_t size, DType dtype, bool equal) {
    std::mt19937 random(1);
    std::normal_distribution<float> logit(0, 3);
    std::vector<char> bytes(size * NumBytes(dtype));
    for (size_t i = 0; i < size; ++i) {
      const float x = equal ? 1.5f : logit(random);
      const char* const from = reinterpret_cast<const char*>(&x);
      if (dtype == DType::kFloat32) {
        std::copy_n(from, 4, bytes.data() + i * 4);
      } else {  // cut off, which is as random
        std::copy_n(from + 2, 2, bytes.data() + i * 2);
      }
    }
    return bytes;
  }

  const DType dtype_;
  const size_t call_bytes_;
  size_t num_buffers_ = 1;
  DeviceBuffer<char> bytes_;
};

}  // namespace espalier
