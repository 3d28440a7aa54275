#include <gmock/gmock.h>

#include "base/cuda.h"
#include "base/cuda_device_scope.h"
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

TEST(CudaGpuTest, WhatTheDeviceWritesToPinnedMemoryIsThere) {
  auto pinned = PinnedBuffer<int>::Create(4);
  ASSERT_TRUE(pinned.ok());
  auto stream = CudaStream::Create();
  ASSERT_TRUE(stream.ok());
  ASSERT_EQ(cudaMemsetAsync(pinned->data(), 0xFF, pinned->size_bytes(),
                            stream->get()),
            cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream->get()), cudaSuccess);
  for (int i = 0; i < 4; ++i) EXPECT_EQ((*pinned)[i], -1);
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
