// Device memory as one array of 4-byte words with a host image of it, as a step
// keeps its own: arrays are laid out one after the other, and what changes is
// put into deltas. A failure fails the test.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "base/cuda.h"
#include "base/cuda_pinned_memory.h"
#include "kernels/resident/cuda_resident.h"
#include "tests/status_matchers.h"

namespace espalier::testing {

class DeviceWords {
 public:
  // Returns the offset of a new array of `count` words. Call it before Upload.
  int Add(int count) {
    const int offset = static_cast<int>(host.size());
    host.resize(host.size() + (count + 3) / 4 * 4);
    return offset;
  }

  void Upload() {
    auto buffer = DeviceBuffer<int>::Create(host.size());
    auto segments = PinnedBuffer<CudaStagedWrite>::Create(kMaxSegments);
    auto payload = PinnedBuffer<int>::Create(kMaxPayload);
    ASSERT_TRUE(buffer.ok() && segments.ok() && payload.ok());
    device_ = *std::move(buffer);
    segments_ = *std::move(segments);
    payload_ = *std::move(payload);
    ASSERT_OK(
        CudaStatus(cudaMemcpy(device_.data(), host.data(), device_.size_bytes(),
                              cudaMemcpyHostToDevice),
                   "cudaMemcpy"));
    // The copy may still be under way, and our streams do not wait for it.
    ASSERT_OK(CudaStatus(cudaStreamSynchronize(nullptr), "cudaMemcpy"));
  }
  void Download() {
    ASSERT_OK(
        CudaStatus(cudaMemcpy(host.data(), device_.data(), device_.size_bytes(),
                              cudaMemcpyDeviceToHost),
                   "cudaMemcpy"));
  }

  template <typename T>
  T* At(int offset) const {
    return reinterpret_cast<T*>(device_.data() + offset);
  }
  std::vector<int> Slice(int offset, size_t count) const {
    return {host.begin() + offset, host.begin() + offset + count};
  }

  // Puts words into the delta, in segments of any length.
  void Put(int target, const std::vector<int>& values) {
    for (size_t done = 0; done < values.size();) {
      const int count = static_cast<int>(
          std::min<size_t>(1 + random_() % 90, values.size() - done));
      ASSERT_LT(num_segments_, kMaxSegments);
      segments_[num_segments_++] = {target + static_cast<int>(done),
                                    num_payload_, count};
      for (int i = 0; i < count; ++i) {
        ASSERT_LT(num_payload_, kMaxPayload);
        payload_[num_payload_++] = values[done + i];
      }
      done += count;
    }
  }
  // Writes the delta to the device and waits for it.
  void ApplyDelta(CudaStepClock* clock, cudaStream_t stream) {
    ASSERT_OK(CudaApplyStagedWrites(segments_.data(), num_segments_,
                                    payload_.data(), device_.data(), clock,
                                    stream));
    ASSERT_OK(CudaStatus(cudaStreamSynchronize(stream), "kernels"));
    num_segments_ = 0;
    num_payload_ = 0;
  }

  std::vector<int> host;

 private:
  static constexpr int kMaxSegments = 1 << 17;
  static constexpr int kMaxPayload = 1 << 20;

  std::mt19937 random_{20240607};
  DeviceBuffer<int> device_;
  PinnedBuffer<CudaStagedWrite> segments_;
  PinnedBuffer<int> payload_;
  int num_segments_ = 0;
  int num_payload_ = 0;
};

}  // namespace espalier::testing
