// Products of one tile of rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "kernels/matmul/cuda_gate_up_gemm.h"
#include "tests/few_cases.h"
#include "tests/kernels/matmul/matmul_cases.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::Case;
using testing::Cases;
using testing::Download;
using testing::ExactSums;
using testing::ExpectSiluMul;
using testing::Upload;
using testing::Weights;
using testing::Widened;

constexpr DType kTypes[] = {DType::kBFloat16, DType::kFloat16};
// Blocks of 128 outputs, and of 256, which fill up to 198 multiprocessors.
constexpr int kFewOutputs = 3 * 128, kManyOutputs = 132 * 256;

class CudaGateUpGemmGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(const CudaDevice device, CudaDevice::Open(0));
    ASSERT_OK_AND_ASSIGN(matmul_, CudaGateUpGemm::Create(device));
    if (!matmul_.CanImplement(1, {nullptr, DType::kBFloat16, 128, 128})) {
      GTEST_SKIP() << "needs compute capability 9.0 and a build for sm_90a";
    }
    stream_ = std::move(*CudaStream::Create());
  }

  // Multiplies into poisoned memory, whose last bytes must not change.
  template <typename Enqueue>
  std::vector<std::byte> Result(size_t size, const Enqueue& enqueue) {
    constexpr size_t kGuard = 64;
    const std::vector<std::byte> poison(size + kGuard, std::byte{0xFF});
    const DeviceBuffer<std::byte> out = Upload(poison);
    const absl::Status status = enqueue(out.data());
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
    std::vector<std::byte> bytes = Download(out);
    EXPECT_TRUE(std::equal(bytes.begin() + size, bytes.end(), poison.begin()));
    bytes.resize(size);
    return bytes;
  }

  CudaGateUpGemm matmul_;
  CudaStream stream_;
};

// Fewer tiles than the ring has room for, and more.
TEST_F(CudaGateUpGemmGpuTest, GatesAndUpsAreAsNearAsTheirTypeAllows) {
  const auto check = [&](int num_outputs, int num_cols, DType dtype,
                         const std::vector<int>& rows) {
    const Weights weights(num_outputs, num_cols, dtype);
    for (const int n : rows) {
      if (HasFailure()) return;
      SCOPED_TRACE(Concat(n, " x ", num_cols, " for ", num_outputs, " in ",
                          static_cast<int>(dtype)));
      const Case c(n, weights);
      const size_t bytes = size_t(n) * (num_outputs / 2) * NumBytes(dtype);
      const auto out = Result(bytes, [&](std::byte* to) {
        return matmul_.Run(c.device_x.data(), n, c.matrix, to, stream_.get());
      });
      ExpectSiluMul(ExactSums(c), c.matrix, Widened(out, dtype));
    }
  };
  const auto rows = Cases(
      std::vector{1, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 144, 159, 160},
      std::vector{17, 33, 128, 160});
  for (const DType dtype : kTypes) {
    for (const int num_cols : {128, 256, 384, 1024}) {
      check(kFewOutputs, num_cols, dtype, rows);
    }
    check(kManyOutputs, 384, dtype, {17, 64, 127, 129, 160});
  }
}

// A request's result does not depend on the number of requests beside it.
TEST_F(CudaGateUpGemmGpuTest, ARowHasTheSameBitsAmongAnyNumberOfRows) {
  for (const int num_outputs : {kFewOutputs, kManyOutputs}) {
    for (const DType dtype : kTypes) {
      const Weights weights(num_outputs, 640, dtype);
      const Case c(160, weights);
      const auto rows = [&](int n) {
        return Result(size_t(n) * num_outputs, [&](std::byte* to) {
          return matmul_.Run(c.device_x.data(), n, c.matrix, to, stream_.get());
        });
      };
      const std::vector<std::byte> all = rows(160);
      for (const int n : {1, 17, 32, 33, 64, 65, 127, 128, 129, 159}) {
        const std::vector<std::byte> some = rows(n);
        EXPECT_TRUE(std::ranges::equal(some, std::span(all).first(some.size())))
            << n << " for " << num_outputs;
      }
    }
  }
}

TEST_F(CudaGateUpGemmGpuTest, TakesWholeTilesOfUpTo160Rows) {
  const auto takes = [&](int num_rows, int num_outputs, int num_cols,
                         DType dtype) {
    return matmul_.CanImplement(num_rows,
                                {nullptr, dtype, num_outputs, num_cols});
  };
  EXPECT_TRUE(takes(160, 512, 384, DType::kBFloat16));
  EXPECT_FALSE(takes(161, 512, 384, DType::kBFloat16));
  EXPECT_FALSE(takes(128, 528, 384, DType::kBFloat16));
  EXPECT_FALSE(takes(128, 512, 392, DType::kFloat16));
  EXPECT_FALSE(takes(128, 512, 384, DType::kFloat32));
}

// The next product may begin before the one before it has ended.
TEST_F(CudaGateUpGemmGpuTest, ChainsGiveTheSameBitsStepByStepAndReplayed) {
  constexpr int kCols = 1024, kRows = 100, kLength = 20;
  const Weights weights(2 * kCols, kCols, DType::kBFloat16);
  const Case c(kRows, weights);
  testing::ExpectChainsAreTheSame(
      c.x.bytes, kLength, 3, stream_.get(), [&](const void* from, void* to) {
        return matmul_.Run(from, kRows, c.matrix, to, stream_.get());
      });
}

}  // namespace
}  // namespace espalier
