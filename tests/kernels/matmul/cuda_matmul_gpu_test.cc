#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/matmul/cuda_matmul.h"
#include "tests/few_cases.h"
#include "tests/kernels/matmul/matmul_cases.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::Append;
using testing::Case;
using testing::Cases;
using testing::Download;
using testing::ExactSums;
using testing::ExpectSiluMul;
using testing::ExpectSums;
using testing::MatrixNumbers;
using testing::Sums;
using testing::Upload;
using testing::Weights;
using testing::Widened;
using Counts = std::vector<int>;

constexpr int kMaxRows = 1100;
constexpr int kMaxOutputs = 3072;

DType OutType(CudaEpilogue epilogue, DType dtype) {
  return epilogue == CudaEpilogue::kStore || epilogue == CudaEpilogue::kSiluMul
             ? dtype
             : DType::kFloat32;
}

// The device, a stream and a CudaMatMul.
class CudaMatMulGpuTest : public ::testing::Test {
 protected:
  CudaMatMulGpuTest() {
    const auto device = CudaDevice::Open(0);
    auto matmul = CudaMatMul::Create(
        *device, {.max_rows = kMaxRows, .max_outputs = kMaxOutputs});
    EXPECT_TRUE(matmul.ok()) << matmul.status();
    matmul_ = std::move(*matmul);
    stream_ = std::move(*CudaStream::Create());
  }

  // Returns memory that held `before` (repeated), after Run.
  std::vector<std::byte> Product(const Case& c, CudaEpilogue epilogue,
                                 std::span<const std::byte> before) {
    DeviceBuffer<std::byte> out = Upload(before);
    const absl::Status status =
        matmul_->Run(c.device_x.data(), c.num_rows, c.matrix, epilogue,
                     out.data(), stream_.get());
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
    return Download(out);
  }
  // As above, into poisoned memory; the bytes after the result must not change.
  std::vector<float> Product(const Case& c, CudaEpilogue epilogue) {
    constexpr int kGuard = 64;
    const int width = epilogue == CudaEpilogue::kSiluMul ? c.matrix.num_rows / 2
                                                         : c.matrix.num_rows;
    const DType type = OutType(epilogue, c.matrix.dtype);
    const size_t size = size_t(c.num_rows) * width * NumBytes(type);
    const std::vector<std::byte> poison(size + kGuard, std::byte{0xFF});
    const std::vector<std::byte> bytes = Product(c, epilogue, poison);
    EXPECT_TRUE(std::equal(bytes.begin() + size, bytes.end(), poison.begin()));
    return Widened(std::span(bytes).first(size), type);
  }

  std::unique_ptr<CudaMatMul> matmul_;
  CudaStream stream_;
};

struct Size {
  int num_outputs;
  int num_cols;
};
std::ostream& operator<<(std::ostream& out, const Size& size) {
  return out << size.num_outputs << "x" << size.num_cols;
}

class CudaMatMulSizesGpuTest
    : public CudaMatMulGpuTest,
      public ::testing::WithParamInterface<std::tuple<DType, Size>> {};

INSTANTIATE_TEST_SUITE_P(
    Sizes, CudaMatMulSizesGpuTest,
    ::testing::Combine(
        ::testing::Values(DType::kBFloat16, DType::kFloat16, DType::kFloat32),
        ::testing::Values(Size{1, 8}, Size{16, 8}, Size{48, 24}, Size{100, 40},
                          Size{333, 1064}, Size{2304, 768}, Size{768, 3072},
                          Size{272, 8200}, Size{1500, 4104}, Size{2128, 4104},
                          Size{4250, 4104}, Size{6150, 264}, Size{32003, 64})));

TEST_P(CudaMatMulSizesGpuTest, EveryEpilogueIsAsNearAsItsTypeAllows) {
  const auto [dtype, size] = GetParam();
  const Weights weights(size.num_outputs, size.num_cols, dtype);
  // Few: more than 16 rows of few weights alone, as those cost a tool most.
  const bool is_small = size.num_outputs * size.num_cols < 1'000'000;
  for (const int n : Cases(Counts{1, 2, 5, 8, 9, 16, 17, 24, 25, 32, 33, 40, 41,
                                  48, 49, 128, 300},
                           is_small ? Counts{5, 16, 33} : Counts{5, 16})) {
    SCOPED_TRACE(Concat("n ", n));
    const Case c(n, weights);
    const Sums sums = ExactSums(c);
    const int width = size.num_outputs;
    ExpectSums(sums, width, dtype, 0, Product(c, CudaEpilogue::kStore));
    ExpectSums(sums, width, DType::kFloat32, 0,
               Product(c, CudaEpilogue::kStoreFloat));
    MatrixNumbers before;
    for (int i = 0; i < n * width; ++i) Append(3, DType::kFloat32, before);
    ExpectSums(sums, width, DType::kFloat32, 3,
               Widened(Product(c, CudaEpilogue::kAddFloat, before.bytes),
                       DType::kFloat32));
    if (width % 16 == 0) {
      ExpectSiluMul(sums, c.matrix, Product(c, CudaEpilogue::kSiluMul));
    }
    if (HasFailure()) return;
  }
}

// Few outputs of long sums, which an H200 sums in two parts (more than 16 rows
// of 300 alone): one, two and three tiles of sixteen outputs a block.
TEST_F(CudaMatMulGpuTest, PartsOfLongSumsMeet) {
  for (const int num_outputs : {300, 4100, 6150}) {
    const Weights weights(num_outputs, 3080, DType::kBFloat16);
    for (const int n : Cases(Counts{3, 8, 13, 24, 39}, Counts{8, 24})) {
      const Case c(n, weights);
      ExpectSums(ExactSums(c), num_outputs, DType::kFloat32, 0,
                 Product(c, CudaEpilogue::kStoreFloat));
    }
  }
}

// The sum that RunSplitK stores plus the partials it leaves are the product,
// for shapes of one part and of several.
TEST_F(CudaMatMulGpuTest, WhatIsAddedLaterMakesTheProduct) {
  int most = 0;
  for (const auto& [num_outputs, num_cols] :
       {Size{768, 3072}, Size{1040, 1024}, Size{100, 40}, Size{2304, 768}}) {
    const Weights weights(num_outputs, num_cols, DType::kBFloat16);
    for (const int n :
         Cases(Counts{8, 17, 32, 128, 300, 1024}, Counts{8, 32, 300})) {
      SCOPED_TRACE(Concat(n, " x ", num_cols, " x ", num_outputs));
      const Case c(n, weights);
      const int size = n * num_outputs;
      MatrixNumbers before;
      for (int i = 0; i < size; ++i) Append(3, DType::kFloat32, before);
      DeviceBuffer<std::byte> residual;
      const auto add_later = [&] {
        residual = Upload(before.bytes);
        return matmul_->RunSplitK(c.device_x.data(), n, c.matrix,
                                  reinterpret_cast<float*>(residual.data()),
                                  stream_.get());
      };
      auto left = add_later();
      ASSERT_TRUE(left.ok()) << left.status();
      most = std::max(most, left->count);
      // Again over NaN: every addend is written, whatever was there before.
      ASSERT_EQ(cudaMemsetAsync(const_cast<float*>(left->data), 0xFF,
                                size_t{4} * left->count * size, stream_.get()),
                cudaSuccess);
      left = add_later();
      ASSERT_TRUE(left.ok()) << left.status();
      std::vector<float> addends(size_t(left->count) * size);
      ASSERT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
      ASSERT_EQ(cudaMemcpy(addends.data(), left->data, 4 * addends.size(),
                           cudaMemcpyDefault),
                cudaSuccess);
      std::vector<float> sums = Widened(Download(residual), DType::kFloat32);
      for (size_t i = 0; i < addends.size(); ++i) sums[i % size] += addends[i];
      ExpectSums(ExactSums(c), num_outputs, DType::kFloat32, 3, sums);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(most, 1);
}

// cuBLASLt overwrites all of the scratch that SiluMul reads: NaN from before
// does not reach the output.
TEST_F(CudaMatMulGpuTest, NothingOldInScratchReachesGatesAndUps) {
  const Weights wide(768, 3072, DType::kBFloat16);
  const Case divided(300, wide);
  const DeviceBuffer<std::byte> residual =
      Upload(std::vector<std::byte>(size_t{4} * 300 * 768));
  const auto left = matmul_->RunSplitK(
      divided.device_x.data(), 300, divided.matrix,
      reinterpret_cast<float*>(residual.data()), stream_.get());
  ASSERT_TRUE(left.ok()) << left.status();
  if (left->count == 0) GTEST_SKIP() << "this device divides nothing";
  const size_t scratch_bytes = size_t{4} * left->count * 300 * 768;

  const Weights weights(1536, 768, DType::kBFloat16);
  for (const int n : {17, 100, 300}) {
    const Case c(n, weights);
    ASSERT_GE(scratch_bytes, size_t{2} * n * 1536);
    ASSERT_EQ(cudaMemsetAsync(const_cast<float*>(left->data), 0xFF,
                              scratch_bytes, stream_.get()),
              cudaSuccess);
    ExpectSiluMul(ExactSums(c), c.matrix, Product(c, CudaEpilogue::kSiluMul));
  }
}

// More rows than one run of the gate and up products takes.
TEST_F(CudaMatMulGpuTest, ManyRowsOfGatesAndUps) {
  const Weights weights(96, 72, DType::kBFloat16);
  const Case c(kMaxRows, weights);
  ExpectSiluMul(ExactSums(c), c.matrix, Product(c, CudaEpilogue::kSiluMul));
}

// RunActivated equals the stored product followed by the activation, at any
// number of rows.
TEST_F(CudaMatMulGpuTest, ActivationsAreOfTheStoredProduct) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
    const Weights weights(96, 72, dtype);
    const MatrixNumbers bias =
        testing::RandomNumbers(96, 1, DType::kFloat32, 4);
    const DeviceBuffer<std::byte> device_bias = Upload(bias.bytes);
    for (const bool has_gate : {false, true}) {
      const CudaActivation activation = {
          .has_gate = has_gate,
          .kind = CudaActivationKind::kGeluTanh,
          .bias = reinterpret_cast<const float*>(device_bias.data())};
      for (const int n : {1, 16, 17, 100, 1024}) {
        const Case c(n, weights);
        const size_t bytes = size_t(n) * (has_gate ? 48 : 96) * NumBytes(dtype);
        const std::vector<std::byte> poison(bytes + 64, std::byte{0xFF});
        const DeviceBuffer<std::byte> out = Upload(poison);
        ASSERT_OK(matmul_->RunActivated(c.device_x.data(), n, c.matrix,
                                        activation, out.data(), stream_.get()));
        const DeviceBuffer<std::byte> sums =
            Upload(std::vector<std::byte>(size_t(n) * 96 * NumBytes(dtype)));
        const DeviceBuffer<std::byte> expected = Upload(poison);
        ASSERT_OK(matmul_->Run(c.device_x.data(), n, c.matrix,
                               CudaEpilogue::kStore, sums.data(),
                               stream_.get()));
        ASSERT_OK(CudaActivate(sums.data(), dtype, n, 96, activation,
                               expected.data(), stream_.get()));
        ASSERT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
        ASSERT_EQ(Download(out), Download(expected)) << n;
      }
    }
  }
}

TEST_F(CudaMatMulGpuTest, ManyRowsAreActivatedInRuns) {
  const Weights weights(96, 72, DType::kBFloat16);
  const Case c(kMaxRows, weights);
  const DeviceBuffer<std::byte> out =
      Upload(std::vector<std::byte>(size_t{kMaxRows} * 48 * 2));
  ASSERT_OK(matmul_->RunActivated(c.device_x.data(), kMaxRows, c.matrix, {},
                                  out.data(), stream_.get()));
  ASSERT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
  ExpectSiluMul(ExactSums(c), c.matrix,
                Widened(Download(out), DType::kBFloat16));
}

// The partials of RunPartials add up to the product; no other input is needed.
TEST_F(CudaMatMulGpuTest, PartialsMakeTheProduct) {
  int most = 0;
  for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
    for (const auto& [num_outputs, num_cols] :
         {Size{768, 3072}, Size{1040, 1024}, Size{104, 40}, Size{4352, 4480}}) {
      const Weights weights(num_outputs, num_cols, dtype);
      for (const int n : Cases(Counts{1, 16, 17, 128, 300}, Counts{8, 128})) {
        SCOPED_TRACE(Concat(n, " x ", num_cols, " x ", num_outputs));
        const Case c(n, weights);
        const size_t size = size_t(n) * num_outputs;
        const DeviceBuffer<std::byte> out =
            Upload(std::vector<std::byte>(4 * size, std::byte{0xFF}));
        const auto partials = matmul_->RunPartials(
            c.device_x.data(), n, c.matrix,
            reinterpret_cast<float*>(out.data()), stream_.get());
        ASSERT_OK(partials);
        ASSERT_GE(partials->count, 1);
        most = std::max(most, partials->count);
        std::vector<float> addends(partials->count * size);
        ASSERT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
        ASSERT_EQ(cudaMemcpy(addends.data(), partials->data, 4 * addends.size(),
                             cudaMemcpyDefault),
                  cudaSuccess);
        std::vector<float> sums(size);
        for (size_t i = 0; i < addends.size(); ++i) {
          sums[i % size] += addends[i];
        }
        ExpectSums(ExactSums(c), num_outputs, DType::kFloat32, 0, sums);
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(most, 1);
}

TEST_F(CudaMatMulGpuTest, ARowHasTheSameBitsAtAnyPlaceAndInEveryCall) {
  for (const DType dtype :
       {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
    for (const int num_cols : Cases(Counts{768, 3072}, Counts{768})) {
      const int num_outputs = 784;
      const Weights weights(num_outputs, num_cols, dtype);
      for (const int n :
           Cases(Counts{2, 5, 8, 12, 16, 27, 32, 64, 300}, Counts{2, 12, 32})) {
        Case c(n, weights);
        const auto out = Product(c, CudaEpilogue::kStoreFloat);
        ASSERT_EQ(Product(c, CudaEpilogue::kStoreFloat), out);
        // Every row but the last moves up, among the same neighbours.
        const int bytes = num_cols * NumBytes(dtype);
        std::rotate(c.x.bytes.begin(), c.x.bytes.begin() + bytes,
                    c.x.bytes.end());
        c.device_x = Upload(c.x.bytes);
        auto moved = Product(c, CudaEpilogue::kStoreFloat);
        std::rotate(moved.begin(), moved.end() - num_outputs, moved.end());
        ASSERT_EQ(moved, out) << "n " << n << " of " << num_cols;
      }
    }
  }
}

// A kernel that starts early reads the output of the previous one; and a
// captured graph does what its calls do.
TEST_F(CudaMatMulGpuTest, ChainsGiveTheSameBitsStepByStepAndReplayed) {
  constexpr int kCols = 1024;
  const int length = Cases(20, 4);
  const Weights weights(kCols, kCols, DType::kBFloat16);
  for (const int n : Cases(Counts{1, 8, 16, 32, 100}, Counts{8, 32})) {
    const Case c(n, weights);
    SCOPED_TRACE(n);
    testing::ExpectChainsAreTheSame(
        c.x.bytes, length, Cases(5, 1), stream_.get(),
        [&](const void* from, void* to) {
          return matmul_->Run(from, n, c.matrix, CudaEpilogue::kStore, to,
                              stream_.get());
        });
    if (HasFailure()) return;
  }
}

TEST_F(CudaMatMulGpuTest, NonFiniteNumbersStayInTheirOwnRows) {
  const Weights weights(100, 264, DType::kBFloat16);
  for (const int n : {8, 16, 32, 100}) {
    Case c(n, weights);
    const uint16_t nan = 0x7FC0;
    std::memcpy(&c.x.bytes[(264 + 10) * 2], &nan, 2);
    c.device_x = Upload(c.x.bytes);
    const auto out = Product(c, CudaEpilogue::kStoreFloat);
    for (int i = 0; i < n * 100; ++i) {
      ASSERT_EQ(std::isnan(out[i]), i / 100 == 1) << i;
    }
  }
}

TEST_F(CudaMatMulGpuTest, WhatWasNotPlannedForIsRefused) {
  using absl::StatusCode;
  const Weights weights(32, 24, DType::kBFloat16);
  const Case c(1, weights);
  const auto run = [&](int n, CudaMatrix w, CudaEpilogue epilogue) {
    return matmul_->Run(c.device_x.data(), n, w, epilogue, nullptr,
                        stream_.get());
  };
  CudaMatrix w = c.matrix;
  const auto refused =
      testing::StatusIs(StatusCode::kInvalidArgument, ::testing::_);
  EXPECT_THAT(run(kMaxRows + 1, w, CudaEpilogue::kStore), refused);
  w.num_cols = 20;
  EXPECT_THAT(run(1, w, CudaEpilogue::kStore), refused);
  w = c.matrix;
  w.num_rows = 24;
  EXPECT_THAT(run(1, w, CudaEpilogue::kSiluMul), refused);
  EXPECT_TRUE(run(0, c.matrix, CudaEpilogue::kStore).ok());
}

}  // namespace
}  // namespace espalier
