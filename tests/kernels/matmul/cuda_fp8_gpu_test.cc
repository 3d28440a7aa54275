// Products of e4m3 weights on the device, against those of the dequantized
// bfloat16 weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/matmul/cuda_fp8_dequantize.h"
#include "kernels/matmul/cuda_fp8_gemm.h"
#include "kernels/matmul/cuda_fp8_skinny.h"
#include "kernels/matmul/cuda_matmul.h"
#include "tests/few_cases.h"
#include "tests/kernels/matmul/fp8_cases.h"
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
using testing::Fp8Weights;
using testing::MatrixNumbers;
using testing::Sums;
using testing::Upload;
using testing::Widened;
using Counts = std::vector<int>;

constexpr CudaEpilogue kEpilogues[] = {
    CudaEpilogue::kStore, CudaEpilogue::kStoreFloat, CudaEpilogue::kAddFloat,
    CudaEpilogue::kSiluMul};

DType OutType(CudaEpilogue epilogue) {
  return epilogue == CudaEpilogue::kStore || epilogue == CudaEpilogue::kSiluMul
             ? DType::kBFloat16
             : DType::kFloat32;
}

class CudaFp8GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(device_, CudaDevice::Open(0));
    ASSERT_OK_AND_ASSIGN(gemm_, CudaFp8Gemm::Create(device_));
    ASSERT_OK(PrepareFp8Skinny(device_));
    stream_ = std::move(*CudaStream::Create());
  }

  bool HasGemm() const {
    return gemm_.CanImplement({nullptr, DType::kBFloat16, 64, 128});
  }

  // Returns memory that held `before`, after `enqueue`. Checks that the bytes
  // behind it are unchanged.
  template <typename Enqueue>
  std::vector<std::byte> Result(std::vector<std::byte> before,
                                const Enqueue& enqueue) {
    constexpr size_t kGuard = 64;
    const size_t size = before.size();
    before.resize(size + kGuard, std::byte{0xFF});
    const DeviceBuffer<std::byte> out = Upload(before);
    const absl::Status status = enqueue(out.data());
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
    std::vector<std::byte> bytes = Download(out);
    EXPECT_TRUE(
        std::equal(bytes.begin() + size, bytes.end(), before.begin() + size));
    bytes.resize(size);
    return bytes;
  }

  // Checks one epilogue of `multiply(epilogue, out)`.
  template <typename Multiply>
  void CheckEpilogue(const Case& c, const Sums& sums, CudaEpilogue epilogue,
                     const Multiply& multiply) {
    const bool halves = epilogue == CudaEpilogue::kSiluMul;
    if (halves && c.matrix.num_rows % 16 != 0) return;
    const int width = c.matrix.num_rows / (halves ? 2 : 1);
    const DType type = OutType(epilogue);
    std::vector<std::byte> before(size_t(c.num_rows) * width * NumBytes(type),
                                  std::byte{0xFF});
    double addend = 0;
    if (epilogue == CudaEpilogue::kAddFloat) {
      addend = 3;
      MatrixNumbers threes;
      for (int i = 0; i < c.num_rows * width; ++i) {
        Append(3, DType::kFloat32, threes);
      }
      before = threes.bytes;
    }
    const std::vector<float> out = Widened(
        Result(before, [&](void* to) { return multiply(epilogue, to); }), type);
    if (halves) {
      ExpectSiluMul(sums, c.matrix, out);
    } else {
      ExpectSums(sums, width, type, addend, out);
    }
  }

  CudaDevice device_;
  CudaFp8Gemm gemm_;
  CudaStream stream_;
};

// Tests all codes, with scales of any size: the values are exact, subnormal
// ones too.
TEST_F(CudaFp8GpuTest, CodesAreWhatTheyStandFor) {
  for (const float largest : {448.0f, 0.7f, 3e-5f, 1e-20f, 5e4f}) {
    std::vector<float> weights;
    for (int row = 0; row < 13; ++row) {
      for (int code = 0; code < 256; ++code) {
        const float value = FloatFromFp8(static_cast<uint8_t>(code));
        weights.push_back(IsFp8Nan(static_cast<uint8_t>(code))
                              ? largest
                              : value / kMaxFp8 * largest * (1 + row / 16.0f));
      }
    }
    const Fp8Weights w(weights, 13, 256);
    const std::vector<std::byte> out =
        Result(std::vector<std::byte>(2 * weights.size()), [&](void* to) {
          return CudaDequantizeFp8(w.matrix, to, stream_.get());
        });
    ASSERT_EQ(out, w.numbers.bytes) << largest;
  }
}

struct MatrixSize {
  int num_outputs;
  int num_cols;
};

TEST_F(CudaFp8GpuTest, FewRowsAreAsNearAsSumsAllow) {
  if (!HasFp8Skinny(1, device_)) GTEST_SKIP() << "needs more shared memory";
  for (const auto& [num_outputs, num_cols] :
       Cases(std::vector<MatrixSize>{{1, 64},
                                     {16, 64},
                                     {48, 128},
                                     {100, 192},
                                     {333, 1088},
                                     {2304, 768},
                                     {768, 3072},
                                     {4100, 3136},
                                     {6150, 320},
                                     {32003, 64}},
             std::vector<MatrixSize>{{100, 192}, {768, 3072}})) {
    const Fp8Weights weights(num_outputs, num_cols);
    for (const int n : Cases(Counts{1, 2, 5, 8, 9, 16}, Counts{5, 16})) {
      SCOPED_TRACE(Concat(n, " x ", num_cols, " x ", num_outputs));
      const Case c(n, weights);
      const Sums sums = ExactSums(c);
      for (const CudaEpilogue epilogue : kEpilogues) {
        CheckEpilogue(c, sums, epilogue, [&](CudaEpilogue how, void* out) {
          return Fp8SkinnyMatMul(c.device_x.data(), n, c.matrix, how, out,
                                 device_, stream_.get());
        });
      }
      if (HasFailure()) return;
    }
  }
}

// However a product is divided.
TEST_F(CudaFp8GpuTest, TilesOfRowsAreAsNearAsSumsAllow) {
  if (!HasGemm()) GTEST_SKIP() << "needs compute capability 9.0";
  const MatrixSize size = {1024, Cases(2048, 1024)};
  const Fp8Weights weights(size.num_outputs, size.num_cols);
  for (const int n :
       Cases(Counts{1, 8, 9, 17, 32, 33, 64, 65, 127, 128, 129, 300},
             Counts{17, 100, 300})) {
    const Case c(n, weights);
    const Sums sums = ExactSums(c);
    for (const int tiles : {1, 2, 4}) {
      SCOPED_TRACE(Concat(n, " rows, ", tiles, " tiles"));
      for (const CudaEpilogue epilogue : kEpilogues) {
        CheckEpilogue(c, sums, epilogue, [&](CudaEpilogue how, void* out) {
          return gemm_.Run(c.device_x.data(), n, c.matrix, how,
                           {.tiles = tiles}, out, stream_.get());
        });
      }
      if (HasFailure()) return;
    }
  }
}

TEST_F(CudaFp8GpuTest, PartsMakeTheProduct) {
  if (!HasGemm()) GTEST_SKIP() << "needs compute capability 9.0";
  constexpr int kOutputs = 512;
  const Fp8Weights weights(kOutputs, 1024);
  for (const int n : {5, 20, 128, 200}) {
    const Case c(n, weights);
    for (const int parts : {2, 4}) {
      for (const int tiles : {1, 2, 4}) {
        SCOPED_TRACE(Concat(n, " rows, ", parts, " parts, ", tiles));
        const size_t size = size_t(n) * kOutputs;
        const std::vector<float> partials = Widened(
            Result(std::vector<std::byte>(4 * parts * size, std::byte{0xFF}),
                   [&](void* out) {
                     return gemm_.Run(c.device_x.data(), n, c.matrix,
                                      CudaEpilogue::kStoreFloat,
                                      {.tiles = tiles, .parts = parts}, out,
                                      stream_.get());
                   }),
            DType::kFloat32);
        std::vector<float> sums(size);
        for (size_t i = 0; i < partials.size(); ++i) {
          sums[i % size] += partials[i];
        }
        ExpectSums(ExactSums(c), kOutputs, DType::kFloat32, 0, sums);
        if (HasFailure()) return;
      }
    }
  }
}

// ---- CudaMatMul, which chooses among them -----------------------------------

constexpr int kFp8MaxRows = 1100;
constexpr int kFp8MaxOutputs = 1536;

class CudaFp8MatMulGpuTest : public CudaFp8GpuTest {
 protected:
  void SetUp() override {
    CudaFp8GpuTest::SetUp();
    ASSERT_OK_AND_ASSIGN(
        matmul_, CudaMatMul::Create(device_, {.max_rows = kFp8MaxRows,
                                              .max_outputs = kFp8MaxOutputs,
                                              .max_fp8_weights = 1536 * 2048}));
  }
  std::unique_ptr<CudaMatMul> matmul_;
};

// Sizes with and without a tile kernel.
constexpr MatrixSize kSizes[] = {
    {1536, 1024}, {768, 2048}, {333, 192}, {208, 448}};

TEST_F(CudaFp8MatMulGpuTest, EveryEpilogueIsAsNearAsItsTypeAllows) {
  for (const auto& [num_outputs, num_cols] : kSizes) {
    const Fp8Weights weights(num_outputs, num_cols);
    for (const int n : Cases(Counts{1, 8, 9, 16, 17, 64, 100, 300, kFp8MaxRows},
                             Counts{5, 17, 300})) {
      SCOPED_TRACE(Concat(n, " x ", num_cols, " x ", num_outputs));
      const Case c(n, weights);
      const Sums sums = ExactSums(c);
      for (const CudaEpilogue epilogue : kEpilogues) {
        CheckEpilogue(c, sums, epilogue, [&](CudaEpilogue how, void* out) {
          return matmul_->Run(c.device_x.data(), n, c.matrix, how, out,
                              stream_.get());
        });
      }
      if (HasFailure()) return;
    }
  }
}

TEST_F(CudaFp8MatMulGpuTest, PartialsMakeTheProduct) {
  int most = 0;
  for (const auto& [num_outputs, num_cols] : kSizes) {
    const Fp8Weights weights(num_outputs, num_cols);
    for (const int n : {8, 17, 128, 300, kFp8MaxRows}) {
      SCOPED_TRACE(Concat(n, " x ", num_cols, " x ", num_outputs));
      const Case c(n, weights);
      const size_t size = size_t(n) * num_outputs;
      for (const bool adds : {false, true}) {
        MatrixNumbers before;
        for (size_t i = 0; i < size; ++i) Append(3, DType::kFloat32, before);
        const DeviceBuffer<std::byte> out = Upload(before.bytes);
        auto* const to = reinterpret_cast<float*>(out.data());
        const auto left =
            adds ? matmul_->RunSplitK(c.device_x.data(), n, c.matrix, to,
                                      stream_.get())
                 : matmul_->RunPartials(c.device_x.data(), n, c.matrix, to,
                                        stream_.get());
        ASSERT_OK(left);
        most = std::max(most, left->count);
        ASSERT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
        std::vector<float> addends(left->count * size);
        if (left->count > 0) {
          ASSERT_EQ(cudaMemcpy(addends.data(), left->data, 4 * addends.size(),
                               cudaMemcpyDefault),
                    cudaSuccess);
        }
        std::vector<float> sums = adds ? Widened(Download(out), DType::kFloat32)
                                       : std::vector<float>(size);
        for (size_t i = 0; i < addends.size(); ++i) {
          sums[i % size] += addends[i];
        }
        ExpectSums(ExactSums(c), num_outputs, DType::kFloat32, adds ? 3 : 0,
                   sums);
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GE(most, HasGemm() ? 2 : 1);
}

// The product is rounded before the activation.
TEST_F(CudaFp8MatMulGpuTest, ActivationsAreOfTheStoredProduct) {
  const Fp8Weights weights(128, 192);
  const CudaActivation activation = {.kind = CudaActivationKind::kGeluTanh};
  for (const int n : {1, 17, 300, kFp8MaxRows}) {
    const Case c(n, weights);
    const auto activated =
        Result(std::vector<std::byte>(size_t(n) * 64 * 2), [&](void* out) {
          return matmul_->RunActivated(c.device_x.data(), n, c.matrix,
                                       activation, out, stream_.get());
        });
    const auto expected =
        Result(std::vector<std::byte>(size_t(n) * 64 * 2), [&](void* out) {
          const DeviceBuffer<std::byte> sums =
              Upload(std::vector<std::byte>(size_t(n) * 128 * 2));
          // In the runs in which RunActivated takes them.
          for (int row = 0; row < n; row += 1024) {
            const int rows = std::min(1024, n - row);
            EXPECT_OK(matmul_->Run(c.device_x.data() + row * 192 * 2, rows,
                                   c.matrix, CudaEpilogue::kStore,
                                   sums.data() + row * 128 * 2, stream_.get()));
          }
          const absl::Status status =
              CudaActivate(sums.data(), DType::kBFloat16, n, 128, activation,
                           out, stream_.get());
          EXPECT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
          return status;
        });
    ASSERT_EQ(activated, expected) << n;
  }
}

TEST_F(CudaFp8MatMulGpuTest, ARowHasTheSameBitsAtAnyPlaceAndInEveryCall) {
  const Fp8Weights weights(768, 2048);
  for (const int n : Cases(Counts{2, 9, 16, 17, 64, 128, 300}, Counts{9, 64})) {
    Case c(n, weights);
    const std::vector<std::byte> before(size_t(n) * 768 * 4);
    const auto multiply = [&](void* out) {
      return matmul_->Run(c.device_x.data(), n, c.matrix,
                          CudaEpilogue::kStoreFloat, out, stream_.get());
    };
    const std::vector<std::byte> out = Result(before, multiply);
    ASSERT_EQ(Result(before, multiply), out);
    // Every row but the last moves up, among the same neighbours.
    std::rotate(c.x.bytes.begin(), c.x.bytes.begin() + 2048 * 2,
                c.x.bytes.end());
    c.device_x = Upload(c.x.bytes);
    std::vector<std::byte> moved = Result(before, multiply);
    std::rotate(moved.begin(), moved.end() - 768 * 4, moved.end());
    ASSERT_EQ(moved, out) << n;
  }
}

// Kernels that start early read the output of the previous one: skinny
// products, tiles, and weights that are widened into the same buffer again and
// again.
TEST_F(CudaFp8MatMulGpuTest, ChainsGiveTheSameBitsStepByStepAndReplayed) {
  const Fp8Weights first(1024, 1024), second(1024, 1024);
  for (const int n :
       Cases(Counts{1, 16, 32, 100, kFp8MaxRows}, Counts{8, 32})) {
    const Case c(n, first);
    SCOPED_TRACE(n);
    int calls = 0;
    testing::ExpectChainsAreTheSame(
        c.x.bytes, Cases(20, 4), /*num_repeats=*/3, stream_.get(),
        [&](const void* from, void* to) {
          return matmul_->Run(from, n,
                              calls++ % 2 == 0 ? first.matrix : second.matrix,
                              CudaEpilogue::kStore, to, stream_.get());
        });
  }
}

TEST_F(CudaFp8MatMulGpuTest, WhatWasNotPlannedForIsRefused) {
  const Fp8Weights weights(1600, 2048);
  const Case c(1, weights);
  const DeviceBuffer<std::byte> out =
      Upload(std::vector<std::byte>(size_t{1600} * 4));
  EXPECT_THAT(
      matmul_->Run(c.device_x.data(), 1, c.matrix, CudaEpilogue::kStoreFloat,
                   out.data(), stream_.get()),
      testing::StatusIs(
          absl::StatusCode::kInvalidArgument,
          ::testing::HasSubstr(
              "at most 3145728 weights of e4m3, as planned for")));
  const auto without =
      CudaMatMul::Create(device_, {.max_rows = 16, .max_outputs = 16});
  ASSERT_OK(without);
  EXPECT_THAT(
      (*without)->Run(c.device_x.data(), 1, c.matrix, CudaEpilogue::kStoreFloat,
                      out.data(), stream_.get()),
      testing::StatusIs(absl::StatusCode::kInvalidArgument,
                        ::testing::HasSubstr("none were planned")));
}

}  // namespace
}  // namespace espalier
