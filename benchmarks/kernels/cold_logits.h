// How kernels that read rows of logits are timed (cuda_replays.h): a graph of
// calls, each reading other logits, so that they come from memory and not from
// a cache (over 200 MB in turn).
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "base/cuda.h"
#include "base/dtype.h"
#include "benchmarks/cuda_replays.h"

namespace espalier {

// How many inputs of that many bytes are read in turn, and by how many calls.
inline int NumColdBuffers(size_t call_bytes) {
  constexpr size_t kColdBytes = size_t{220} << 20;
  constexpr size_t kMax = 400;
  return static_cast<int>(
      std::clamp<size_t>((kColdBytes + call_bytes - 1) / call_bytes, 1, kMax));
}
inline int NumCalls(int num_buffers) { return std::max(num_buffers, 4); }

// Normal(0, 3) logits; long ones repeat with a period of a few million.
class Logits {
 public:
  // `size` of them; if `equal`, all the same.
  static absl::StatusOr<Logits> Create(size_t size, DType dtype,
                                       bool equal = false) {
    constexpr size_t kPeriod = 4'000'037;
    Logits logits;
    const size_t width = NumBytes(dtype);
    ASSIGN_OR_RETURN(logits.bytes_, DeviceBuffer<char>::Create(size * width));
    const std::vector<char> some = Some(std::min(size, kPeriod), dtype, equal);
    for (size_t at = 0; at < size * width; at += some.size()) {
      RETURN_IF_CUDA_ERROR(cudaMemcpy(logits.bytes_.data() + at, some.data(),
                                      std::min(some.size(), size * width - at),
                                      cudaMemcpyHostToDevice));
    }
    return logits;
  }
  const char* data() const { return bytes_.data(); }

  // Makes a token likely, more or less, in every row of `vocab_size`.
  absl::Status MakeLikely(int token, int vocab_size, DType dtype) {
    const size_t width = NumBytes(dtype), pitch = vocab_size * width;
    const size_t num_rows = bytes_.size() / pitch;
    std::mt19937 random(token);
    std::normal_distribution<float> logit(9, 2);
    std::vector<char> column;
    for (size_t i = 0; i < num_rows; ++i) {
      const float x = logit(random);
      const char* const end = reinterpret_cast<const char*>(&x + 1);
      column.insert(column.end(), end - width, end);
    }
    RETURN_IF_CUDA_ERROR(cudaMemcpy2D(bytes_.data() + token * width, pitch,
                                      column.data(), width, width, num_rows,
                                      cudaMemcpyHostToDevice));
    return absl::OkStatus();
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

  DeviceBuffer<char> bytes_;
};

}  // namespace espalier
