// Several executors in one process: on one device, and on two where there are
// two. Each answers as it does alone, and a caller's current device is its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <thread>
#include <utility>
#include <vector>

#include "base/cuda.h"
#include "tests/executor/cuda/cuda_executor_fixture.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

int NumDevices() {
  int count = 0;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  return count;
}

int CurrentDevice() {
  int device = -1;
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  return device;
}

class CudaDevicesTest : public CudaExecutorTest {
 protected:
  // The first two devices, or the only one twice. The calling thread's is 0.
  static std::array<CudaDevice, 2> TwoDevices() {
    std::array<CudaDevice, 2> devices;
    for (int i = 0; i < 2; ++i) {
      auto device = CudaDevice::Open(std::min(i, NumDevices() - 1));
      EXPECT_OK(device.status());
      if (device.ok()) devices[i] = *std::move(device);
    }
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    return devices;
  }

  const DriveOptions drive_ = {.num_in_flight = 2};
};

TEST_F(CudaDevicesTest, TwoExecutorsAnswerTogetherAsEachAlone) {
  const std::array<CudaDevice, 2> devices = TwoDevices();
  std::array<OnDevice, 2> loaded;
  std::array<std::vector<Request>, 2> requests;
  std::array<Answers, 2> expected, actual;
  for (int i = 0; i < 2; ++i) {
    loaded[i] = Load(Float32(), devices[i]);
    ASSERT_NE(loaded[i].steps, nullptr);
    requests[i] = AnyRequests(Cases(30, 4), 100 + i);
    expected[i] = Drive(*loaded[i].steps, requests[i], drive_);
  }
  EXPECT_EQ(CurrentDevice(), 0);
  for (int round = 0; round < Cases(5, 1); ++round) {
    // Threads that have never had a device.
    std::array<std::thread, 2> threads;
    for (int i = 0; i < 2; ++i) {
      threads[i] = std::thread([&, i] {
        actual[i] = Drive(*loaded[i].steps, requests[i], drive_);
        EXPECT_EQ(CurrentDevice(), 0);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (int i = 0; i < 2; ++i) {
      SCOPED_TRACE(Concat("executor ", i, ", round ", round));
      ExpectEqual(expected[i], actual[i]);
    }
  }
}

// Made, run and destroyed by threads without a device, one while the other
// runs.
TEST_F(CudaDevicesTest, ExecutorsComeAndGoWhileAnotherRuns) {
  const std::array<CudaDevice, 2> devices = TwoDevices();
  OnDevice steady = Load(Float32(), devices[0]);
  ASSERT_NE(steady.steps, nullptr);
  const std::vector<Request> requests = AnyRequests(Cases(20, 3), 7);
  const Answers expected = Drive(*steady.steps, requests, drive_);
  std::thread other([&] {
    for (int i = 0; i < Cases(4, 1); ++i) {
      OnDevice passing = Load(Float32(), devices[1]);
      ASSERT_NE(passing.steps, nullptr);
      ExpectEqual(expected, Drive(*passing.steps, requests, drive_));
      EXPECT_EQ(CurrentDevice(), 0);
    }
  });
  for (int i = 0; i < Cases(10, 1); ++i) {
    ExpectEqual(expected, Drive(*steady.steps, requests, drive_));
  }
  other.join();
  EXPECT_EQ(CurrentDevice(), 0);
}

TEST_F(CudaDevicesTest, TheSecondDeviceHasAllOfItsExecutorsMemory) {
  if (NumDevices() < 2) GTEST_SKIP() << "there is one device";
  const std::array<CudaDevice, 2> devices = TwoDevices();
  // Free memory of device 0. Pinned memory, which all devices map, may take a
  // little of it.
  const auto free_bytes = [] {
    size_t bytes = 0, total = 0;
    EXPECT_EQ(cudaMemGetInfo(&bytes, &total), cudaSuccess);
    return static_cast<int64_t>(bytes);
  };
  const int64_t before = free_bytes();
  {
    const CudaTransformerOptions options = Float32();
    const OnDevice loaded = Load(options, devices[1]);
    ASSERT_NE(loaded.steps, nullptr);
    EXPECT_LT(before - free_bytes(), options.kv_cache_bytes / 4);
    EXPECT_EQ(CurrentDevice(), 0);
  }
  EXPECT_EQ(CurrentDevice(), 0);
}

}  // namespace
}  // namespace espalier::testing
