#include <gmock/gmock.h>

#include "base/cuda.h"
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

}  // namespace
}  // namespace espalier
