// Launches on the device: the code that runs, and the memory that kernels of a
// chain with early starts see of each other.
#include <gmock/gmock.h>

#include <algorithm>
#include <vector>

#include "base/cuda_launch.cuh"
#include "base/cuda_pinned_memory.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

__global__ void TellCapability(int* capability) {
  LaunchDependents();
  GridDependencyWait();
#ifdef __CUDA_ARCH__
  *capability = __CUDA_ARCH__ / 10;
#endif
}

__device__ void Spin(int64_t cycles) {
  const int64_t start = clock64();
  while (clock64() - start < cycles) {
  }
}

// Slow, so that a kernel that does not wait for it is seen: 10 us.
constexpr int64_t kCycles = 20000;
constexpr int kThreads = 256;

__global__ void AddSlowly(int* x, int n, int addend) {
  LaunchDependents();
  GridDependencyWait();
  Spin(kCycles);
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < n) x[i] += addend;
}

__global__ void Reverse(const int* from, int* to, int n) {
  LaunchDependents();
  GridDependencyWait();
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < n) to[i] = from[n - 1 - i];
}

__global__ void Barrier() {
  GridDependencyWait();
  LaunchDependents();
}

__global__ void CopyEarly(const int* from, int* to, int n) {
  LaunchDependents();
  const int i = blockIdx.x * kThreads + threadIdx.x;
  const int value = i < n ? from[i] : 0;
  GridDependencyWait();
  if (i < n) to[i] = value;
}

// A few blocks, so that those of the next kernel have room beside them.
constexpr int kSize = 8 * kThreads;
constexpr LaunchConfig kShape = {.grid = {kSize / kThreads},
                                 .block = {kThreads}};

LaunchConfig ShapeOf(GridDependency dependency) {
  LaunchConfig shape = kShape;
  shape.dependency = dependency;
  return shape;
}

class CudaLaunchGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(CudaDevice::Open(0).ok());
    auto stream = CudaStream::Create();
    ASSERT_TRUE(stream.ok());
    stream_ = *std::move(stream);
    for (auto* buffer : {&x_, &y_}) {
      auto made = DeviceBuffer<int>::Create(kSize);
      ASSERT_TRUE(made.ok());
      *buffer = *std::move(made);
      ASSERT_EQ(cudaMemset(buffer->data(), 0, buffer->size_bytes()),
                cudaSuccess);
    }
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }

  // Returns the number of elements of y that are not `value` in the end.
  int CountOthers(int value) {
    std::vector<int> y(kSize);
    EXPECT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(y.data(), y_.data(), y_.size_bytes(),
                         cudaMemcpyDeviceToHost),
              cudaSuccess);
    return static_cast<int>(
        std::count_if(y.begin(), y.end(), [&](int i) { return i != value; }));
  }

  CudaStream stream_;
  DeviceBuffer<int> x_, y_;
};

TEST_F(CudaLaunchGpuTest, TheCapabilityIsThatOfTheCodeThatRuns) {
  auto capability = PinnedBuffer<int>::Create(1);
  ASSERT_TRUE(capability.ok());
  ASSERT_TRUE(
      Launch(TellCapability, {}, stream_.get(), capability->data()).ok());
  ASSERT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
  EXPECT_EQ(CompiledCapability(TellCapability), (*capability)[0]);
  EXPECT_GE((*capability)[0], 80);
#ifdef ESPALIER_PTX_CAPABILITY
  EXPECT_EQ((*capability)[0], ESPALIER_PTX_CAPABILITY);
#endif
}

TEST_F(CudaLaunchGpuTest, EachKernelSeesWhatAllBeforeItWrote) {
  for (int round = 1; round <= 100; ++round) {
    ASSERT_TRUE(
        Launch(AddSlowly, kShape, stream_.get(), x_.data(), kSize, 1).ok());
    ASSERT_TRUE(
        Launch(AddSlowly, kShape, stream_.get(), y_.data(), kSize, 0).ok());
    ASSERT_TRUE(
        Launch(Reverse, kShape, stream_.get(), x_.data(), y_.data(), kSize)
            .ok());
    ASSERT_EQ(CountOthers(round), 0) << "of round " << round;
  }
}

TEST_F(CudaLaunchGpuTest, AfterABarrierWhatWasWrittenBeforeItIsReadEarly) {
  for (int round = 1; round <= 100; ++round) {
    ASSERT_TRUE(Launch(AddSlowly, ShapeOf(GridDependency::kWritesEarlyRead),
                       stream_.get(), x_.data(), kSize, 1)
                    .ok());
    ASSERT_TRUE(
        Launch(Barrier, ShapeOf(GridDependency::kBarrier), stream_.get()).ok());
    // Does not touch x, and ends late.
    ASSERT_TRUE(
        Launch(AddSlowly, kShape, stream_.get(), y_.data(), kSize, 1).ok());
    ASSERT_TRUE(Launch(CopyEarly, ShapeOf(GridDependency::kReadsEarly),
                       stream_.get(), x_.data(), y_.data(), kSize)
                    .ok());
    ASSERT_EQ(CountOthers(round), 0) << "of round " << round;
  }
}

TEST_F(CudaLaunchGpuTest, WithoutABarrierAnEarlyReadIsRefused) {
  ASSERT_TRUE(Launch(AddSlowly, ShapeOf(GridDependency::kWritesEarlyRead),
                     stream_.get(), x_.data(), kSize, 1)
                  .ok());
  const LaunchConfig early = ShapeOf(GridDependency::kReadsEarly);
  EXPECT_THAT(
      Launch(CopyEarly, early, stream_.get(), x_.data(), y_.data(), kSize),
      testing::StatusIs(absl::StatusCode::kInternal, HasSubstr("barrier")));
  auto other = CudaStream::Create();
  ASSERT_TRUE(other.ok());
  EXPECT_TRUE(
      Launch(CopyEarly, early, other->get(), x_.data(), y_.data(), kSize).ok());
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(CudaLaunchGpuTest, ClustersAreOfKernelsThatWereCompiledWithThem) {
  LaunchConfig shape = kShape;
  shape.cluster = 2;
  const absl::Status status =
      Launch(AddSlowly, shape, stream_.get(), x_.data(), kSize, 1);
  if (CompiledCapability(AddSlowly) >= 90) {
    EXPECT_TRUE(status.ok());
  } else {
    EXPECT_THAT(status, testing::StatusIs(absl::StatusCode::kInternal,
                                          HasSubstr("8.")));
  }
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

}  // namespace
}  // namespace espalier
