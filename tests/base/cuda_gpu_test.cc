#include <gmock/gmock.h>

#include <algorithm>
#include <cstddef>

#include "base/cuda.h"
#include "base/cuda_device_scope.h"
#include "base/cuda_pinned_memory.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

TEST(CudaGpuTest, OutOfMemoryIsAStatusAndTheDeviceGoesOn) {
  EXPECT_THAT(DeviceBuffer<char>::Create(size_t{1} << 50),
              testing::StatusIs(absl::StatusCode::kResourceExhausted,
                                ::testing::HasSubstr("bytes")));
  ASSERT_TRUE(DeviceBuffer<char>::Create(1 << 20).ok());
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

// Small and large memory is pinned in two ways.
TEST(CudaGpuTest, WhatTheDeviceWritesToPinnedMemoryIsThere) {
  for (const size_t size : {size_t{4}, (size_t{100} << 20) / sizeof(int) + 1}) {
    auto pinned = PinnedBuffer<int>::Create(size);
    ASSERT_TRUE(pinned.ok());
    EXPECT_TRUE(std::all_of(pinned->data(), pinned->data() + size,
                            [](int word) { return word == 0; }));
    auto stream = CudaStream::Create();
    ASSERT_TRUE(stream.ok());
    ASSERT_EQ(cudaMemsetAsync(pinned->data(), 0xFF, pinned->size_bytes(),
                              stream->get()),
              cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream->get()), cudaSuccess);
    EXPECT_TRUE(std::all_of(pinned->data(), pinned->data() + size,
                            [](int word) { return word == -1; }));
  }
}

TEST(CudaGpuTest, PinnedMemoryThatIsNotThereIsAStatus) {
  EXPECT_THAT(PinnedBuffer<char>::Create(size_t{1} << 50),
              testing::StatusIs(absl::StatusCode::kResourceExhausted,
                                ::testing::HasSubstr("pinned")));
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST(CudaGpuTest, AnOrdinalThatIsNotThereIsRefused) {
  EXPECT_THAT(CudaDevice::Open(1 << 20),
              testing::StatusIs(absl::StatusCode::kFailedPrecondition,
                                ::testing::ContainsRegex(
                                    "^no CUDA device 1048576: (the only one "
                                    "is 0|there are 0 to [0-9]+); ")));
}

int CurrentDevice() {
  int device = -1;
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  return device;
}

TEST(CudaGpuTest, AScopeGivesTheThreadItsDeviceBack) {
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    {
      const auto scope = CudaDeviceScope::Enter(ordinal);
      ASSERT_TRUE(scope.ok());
      EXPECT_EQ(CurrentDevice(), ordinal);
      const auto inner = CudaDeviceScope::EnterIfPossible(0);
      EXPECT_EQ(CurrentDevice(), 0);
    }
    EXPECT_EQ(CurrentDevice(), 0);
  }
}

TEST(CudaGpuTest, AScopeOfADeviceThatIsNotThereIsRefused) {
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_FALSE(CudaDeviceScope::Enter(1 << 20).ok());
  EXPECT_EQ(CurrentDevice(), 0);
  { const auto scope = CudaDeviceScope::EnterIfPossible(1 << 20); }
  EXPECT_EQ(CurrentDevice(), 0);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

}  // namespace
}  // namespace espalier
