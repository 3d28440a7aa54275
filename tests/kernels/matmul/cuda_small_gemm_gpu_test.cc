// Products of models whose matrices are all small.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/matmul/cuda_small_gemm.h"
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

constexpr CudaMatMulLimits kSmallLimits = {
    .max_rows = 1100,
    .max_outputs = 3072,
    .largest_matrix = CudaMatMulLimits::kSmallMatrix};

// A CudaMatMul without cuBLASLt.
class CudaSmallGemmGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(const CudaDevice device, CudaDevice::Open(0));
    if (!CanRunSmallGemm(device))
      GTEST_SKIP() << "needs 96 KiB of shared memory";
    ASSERT_OK_AND_ASSIGN(matmul_, CudaMatMul::Create(device, kSmallLimits));
    stream_ = std::move(*CudaStream::Create());
  }

  // The last bytes of `before` must not change.
  std::vector<std::byte> Product(const Case& c, int num_rows,
                                 CudaEpilogue epilogue,
                                 std::vector<std::byte> before) {
    constexpr size_t kGuard = 64;
    const size_t size = before.size();
    before.resize(size + kGuard, std::byte{0xFF});
    const DeviceBuffer<std::byte> out = Upload(before);
    const absl::Status status = SmallGemm(c.device_x.data(), num_rows, c.matrix,
                                          epilogue, out.data(), stream_.get());
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
    std::vector<std::byte> bytes = Download(out);
    EXPECT_TRUE(
        std::equal(bytes.begin() + size, bytes.end(), before.begin() + size));
    bytes.resize(size);
    return bytes;
  }
  // Over NaN.
  std::vector<std::byte> Product(const Case& c, int num_rows,
                                 CudaEpilogue epilogue) {
    const bool is_gated = epilogue == CudaEpilogue::kSiluMul;
    const size_t width = c.matrix.num_rows / (is_gated ? 2 : 1);
    const size_t bytes =
        is_gated || epilogue == CudaEpilogue::kStore ? 2 : sizeof(float);
    return Product(
        c, num_rows, epilogue,
        std::vector<std::byte>(num_rows * width * bytes, std::byte{0xFF}));
  }

  std::unique_ptr<CudaMatMul> matmul_;
  CudaStream stream_;
};

struct SmallSize {
  int num_outputs;
  int num_cols;
};
std::ostream& operator<<(std::ostream& out, const SmallSize& size) {
  return out << size.num_outputs << "x" << size.num_cols;
}

class CudaSmallGemmSizesGpuTest
    : public CudaSmallGemmGpuTest,
      public ::testing::WithParamInterface<std::tuple<DType, SmallSize>> {};

// Tiles of outputs and of inputs that are whole and that are not, fewer stages
// than the ring has room for and more, odd widths.
INSTANTIATE_TEST_SUITE_P(
    Sizes, CudaSmallGemmSizesGpuTest,
    ::testing::Combine(::testing::Values(DType::kBFloat16, DType::kFloat16),
                       ::testing::Values(SmallSize{1, 8}, SmallSize{16, 8},
                                         SmallSize{48, 24}, SmallSize{63, 320},
                                         SmallSize{64, 384}, SmallSize{65, 392},
                                         SmallSize{333, 1064},
                                         SmallSize{1536, 256},
                                         SmallSize{256, 768},
                                         SmallSize{6003, 64})));

TEST_P(CudaSmallGemmSizesGpuTest, EveryEpilogueIsAsNearAsItsTypeAllows) {
  const auto [dtype, size] = GetParam();
  const Weights weights(size.num_outputs, size.num_cols, dtype);
  const int width = size.num_outputs;
  for (const int n :
       Cases(Counts{1, 17, 31, 63, 64, 65, 128, 300}, Counts{17, 65})) {
    SCOPED_TRACE(Concat("n ", n));
    const Case c(n, weights);
    const Sums sums = ExactSums(c);
    ExpectSums(sums, width, dtype, 0,
               Widened(Product(c, n, CudaEpilogue::kStore), dtype));
    ExpectSums(
        sums, width, DType::kFloat32, 0,
        Widened(Product(c, n, CudaEpilogue::kStoreFloat), DType::kFloat32));
    MatrixNumbers before;
    for (int i = 0; i < n * width; ++i) Append(3, DType::kFloat32, before);
    ExpectSums(sums, width, DType::kFloat32, 3,
               Widened(Product(c, n, CudaEpilogue::kAddFloat, before.bytes),
                       DType::kFloat32));
    if (width % 16 == 0) {
      ExpectSiluMul(sums, c.matrix,
                    Widened(Product(c, n, CudaEpilogue::kSiluMul), dtype));
    }
    if (HasFailure()) return;
  }
}

// A request's result does not depend on the number of requests beside it.
TEST_F(CudaSmallGemmGpuTest, ARowHasTheSameBitsAmongAnyNumberOfRows) {
  const Weights weights(336, 328, DType::kBFloat16);
  const Case c(200, weights);
  for (const CudaEpilogue epilogue :
       {CudaEpilogue::kStore, CudaEpilogue::kStoreFloat,
        CudaEpilogue::kSiluMul}) {
    const std::vector<std::byte> all = Product(c, 200, epilogue);
    for (const int n : {1, 17, 63, 64, 65, 128, 199}) {
      const std::vector<std::byte> some = Product(c, n, epilogue);
      EXPECT_TRUE(std::ranges::equal(some, std::span(all).first(some.size())))
          << n << " rows, epilogue " << static_cast<int>(epilogue);
    }
  }
}

// Sums of parts of the inputs, each where it belongs.
TEST_F(CudaSmallGemmGpuTest, PartsMakeTheProduct) {
  for (const auto& [num_outputs, num_cols, num_parts] :
       {std::tuple(256, 768, 4), std::tuple(132, 272, 2),
        std::tuple(67, 320, 2)}) {
    const Weights weights(num_outputs, num_cols, DType::kBFloat16);
    for (const int n : {17, 100}) {
      const Case c(n, weights);
      const size_t size = size_t(n) * num_outputs;
      const DeviceBuffer<std::byte> out =
          Upload(std::vector<std::byte>(4 * size * num_parts, std::byte{0xFF}));
      ASSERT_OK(SmallGemmParts(c.device_x.data(), n, c.matrix, num_parts,
                               reinterpret_cast<float*>(out.data()),
                               stream_.get()));
      ASSERT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
      const std::vector<float> parts = Widened(Download(out), DType::kFloat32);
      std::vector<float> sums(size);
      for (size_t i = 0; i < parts.size(); ++i) sums[i % size] += parts[i];
      ExpectSums(ExactSums(c), num_outputs, DType::kFloat32, 0, sums);
    }
  }
}

// Products of a model of small matrices, with any number of rows.
TEST_F(CudaSmallGemmGpuTest, APlanOfSmallMatricesMultipliesThem) {
  const Weights weights(256, 768, DType::kBFloat16);
  for (const int n : {1, 16, 17, 300, 1100}) {
    const Case c(n, weights);
    const DeviceBuffer<std::byte> out =
        Upload(std::vector<std::byte>(size_t{4} * n * 256));
    ASSERT_OK(matmul_->Run(c.device_x.data(), n, c.matrix,
                           CudaEpilogue::kStoreFloat, out.data(),
                           stream_.get()));
    ASSERT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
    ExpectSums(ExactSums(c), 256, DType::kFloat32, 0,
               Widened(Download(out), DType::kFloat32));
    const auto partials = matmul_->RunPartials(
        c.device_x.data(), n, c.matrix, reinterpret_cast<float*>(out.data()),
        stream_.get());
    ASSERT_OK(partials);
    std::vector<float> parts(size_t(partials->count) * n * 256);
    ASSERT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
    ASSERT_EQ(cudaMemcpy(parts.data(), partials->data, 4 * parts.size(),
                         cudaMemcpyDefault),
              cudaSuccess);
    std::vector<float> sums(size_t(n) * 256);
    for (size_t i = 0; i < parts.size(); ++i) sums[i % sums.size()] += parts[i];
    ExpectSums(ExactSums(c), 256, DType::kFloat32, 0, sums);
  }
}

TEST_F(CudaSmallGemmGpuTest, APlanOfSmallMatricesRefusesOthers) {
  const DeviceBuffer<std::byte> out =
      Upload(std::vector<std::byte>(size_t{4} * 17 * 2048));
  const auto run = [&](const CudaMatrix& w) {
    return matmul_->Run(out.data(), 17, w, CudaEpilogue::kStoreFloat,
                        out.data(), stream_.get());
  };
  const auto refused = [](const char* why) {
    return testing::StatusIs(absl::StatusCode::kInvalidArgument,
                             ::testing::HasSubstr(why));
  };
  EXPECT_THAT(run({out.data(), DType::kBFloat16, 2048, 1032}),
              refused("a matrix of 2113536 weights, at most 2097152"));
  EXPECT_THAT(run({out.data(), DType::kFloat32, 64, 64}),
              refused("weights of f32, of 16 bits were planned for"));
}

}  // namespace
}  // namespace espalier
