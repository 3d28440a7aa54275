// Which products are those of cuda_skinny_matmul.h: a choice of the host.
#include "kernels/matmul/cuda_skinny_matmul.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/cuda_dry_run.h"

namespace espalier {
namespace {

constexpr int kMultiprocessors = 132;
constexpr int kHopperShared = 227 * 1024;
constexpr double kH100Memory = 3.35e12,
                 kH200Memory = 4.9e12;  // bytes of memory a second

CudaDevice DeviceOf(double memory_rate, int shared_bytes = kHopperShared) {
  CudaDevice device;
  device.num_sms = kMultiprocessors;
  device.compute_capability = 90;
  device.max_shared_bytes = shared_bytes;
  device.memory_bytes_per_second = memory_rate;
  return device;
}

// The most rows, up to 100, of which and of all fewer it is the kernel.
int MostRows(int num_outputs, int num_inputs, const CudaDevice& device,
             DType dtype = DType::kBFloat16) {
  const CudaMatrix w = {nullptr, dtype, num_outputs, num_inputs};
  int rows = 0;
  const auto is_chosen = [&](int num_rows) {
    return CanRunSkinnyMatMul(num_rows, w, device) &&
           SkinnyMatMulIsProfitable(num_rows, w, device,
                                    MatMulTuningOf(device));
  };
  while (rows < 100 && is_chosen(rows + 1)) ++rows;
  for (int more = rows + 1; more <= 100; ++more) {
    EXPECT_FALSE(is_chosen(more)) << more;
  }
  return rows;
}

TEST(CudaSkinnyMatMulTest, RowsFollowFromTheMatrix) {
  const CudaDevice device = DeviceOf(kH100Memory);
  constexpr int kTile =
      16 * kMultiprocessors;  // a tile of outputs a multiprocessor
  EXPECT_EQ(MostRows(3 * kTile, 4096, device), 48);
  EXPECT_EQ(MostRows(3 * kTile + 1, 4096, device), 16);  // gates and ups
  EXPECT_EQ(MostRows(3 * kTile, 4088, device), 40);
  EXPECT_EQ(MostRows(2 * kTile + 1, 2048, device), 40);
  EXPECT_EQ(MostRows(2 * kTile, 4096, device), 48);
  EXPECT_EQ(MostRows(2 * kTile, 4088, device), 24);
  EXPECT_EQ(MostRows(2 * kTile, 2048, device), 24);
  EXPECT_EQ(MostRows(2 * kTile, 2040, device), 40);
  EXPECT_EQ(MostRows(kTile + 1, 2048, device), 24);
  EXPECT_EQ(MostRows(kTile, 2048, device), 40);
  EXPECT_EQ(MostRows(kTile, 8192, device), 40);
  EXPECT_EQ(MostRows(16, 8, device), 40);
}

// The faster memory is, the fewer rows are worth reading x so often from L2;
// but for small matrices. Where the rate is not known they are an H100's.
TEST(CudaSkinnyMatMulTest, WhereMemoryIsFasterL2DecidesSooner) {
  const CudaDevice h200 = DeviceOf(kH200Memory), unknown = DeviceOf(0);
  EXPECT_EQ(MostRows(6144, 4096, h200), 32);
  EXPECT_EQ(MostRows(4096, 4096, h200), 16);
  EXPECT_EQ(MostRows(2048, 8192, h200), 24);
  EXPECT_EQ(MostRows(1024, 3072, h200), 40);
  EXPECT_EQ(MostRows(6144, 4096, unknown), 48);
}

TEST(CudaSkinnyMatMulTest, RingsHaveToFitAndNumbersToHave16Bits) {
  const CudaDevice device = DeviceOf(kH100Memory);
  EXPECT_EQ(MostRows(4096, 4096, device, DType::kFloat16), 48);
  EXPECT_EQ(MostRows(4096, 4096, device, DType::kFloat32), 0);
  EXPECT_EQ(MostRows(4096, 4096, DeviceOf(kH100Memory, 99 * 1024)), 0);
  EXPECT_EQ(MostRows(4096, 4096, DeviceOf(kH100Memory, 113 * 1024)), 16);
  EXPECT_EQ(MostRows(4096, 4096, DeviceOf(kH100Memory, 163 * 1024)), 40);
}

// Whose kernels begin when the one in front has ended.
TEST(CudaSkinnyMatMulTest, OlderDevicesHaveItForFewRows) {
  CudaDevice device = DeviceOf(kH100Memory);
  device.compute_capability = 80;
  EXPECT_EQ(MostRows(4096, 4096, device), 16);
}

// A newer device runs an older one's code if only that was compiled.
TEST(CudaSkinnyMatMulTest, AndSoHasCodeThatWasCompiledForThem) {
  const CudaDevice device = DeviceOf(kH100Memory);
  EXPECT_EQ(MostRows(4096, 4096, device), 48);
  std::thread([&] {  // a thread caches the architecture
    testing::BeginDryRun(80);
    EXPECT_EQ(MostRows(4096, 4096, device), 16);
    testing::BeginDryRun(90);
  })
      .join();
}

}  // namespace
}  // namespace espalier
