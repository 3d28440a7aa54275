#include <cuda_fp16.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/cuda_matmul.h"
#include "kernels/matmul.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::Cases;
using Rows = std::vector<int>;

constexpr int kMaxRows = 1100;
constexpr int kMaxOutputs = 3072;

uint16_t HalfBits(float value, DType dtype) {
  if (dtype == DType::kFloat16) {
    return std::bit_cast<uint16_t>(__float2half_rn(value));
  }
  const uint32_t bits = std::bit_cast<uint32_t>(value);  // finite
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// Numbers of a dtype, and the same exactly as float32.
struct Numbers {
  std::vector<std::byte> bytes;
  std::vector<float> widened;
};

void Append(float value, DType dtype, Numbers& numbers) {
  std::byte bytes[4];
  if (dtype == DType::kFloat32) {
    std::memcpy(bytes, &value, 4);
  } else {
    const uint16_t half = HalfBits(value, dtype);
    std::memcpy(bytes, &half, 2);
  }
  numbers.bytes.insert(numbers.bytes.end(), bytes, bytes + NumBytes(dtype));
  numbers.widened.push_back(LoadAsFloat(bytes, dtype));
}

Numbers RandomNumbers(int count, float size, DType dtype, int seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, size);
  Numbers numbers;
  for (int i = 0; i < count; ++i) Append(normal(random), dtype, numbers);
  return numbers;
}

std::vector<float> Widened(std::span<const std::byte> bytes, DType dtype) {
  std::vector<float> values;
  for (size_t i = 0; i < bytes.size(); i += NumBytes(dtype)) {
    values.push_back(LoadAsFloat(&bytes[i], dtype));
  }
  return values;
}

DeviceBuffer<std::byte> Upload(std::span<const std::byte> bytes) {
  auto buffer = DeviceBuffer<std::byte>::Create(bytes.size());
  EXPECT_TRUE(buffer.ok());
  EXPECT_EQ(cudaMemcpy(buffer->data(), bytes.data(), bytes.size(),
                       cudaMemcpyHostToDevice),
            cudaSuccess);
  // The copy may still be under way, and our streams do not wait for it.
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  return std::move(*buffer);
}

std::vector<std::byte> Download(const DeviceBuffer<std::byte>& buffer) {
  std::vector<std::byte> bytes(buffer.size());
  EXPECT_EQ(cudaMemcpy(bytes.data(), buffer.data(), bytes.size(),
                       cudaMemcpyDeviceToHost),
            cudaSuccess);
  return bytes;
}

struct Weights {
  Weights(int num_outputs, int num_cols, DType dtype)
      : numbers(RandomNumbers(num_outputs * num_cols, 1 / std::sqrt(num_cols),
                              dtype, num_outputs)),
        device(Upload(numbers.bytes)),
        matrix{device.data(), dtype, num_outputs, num_cols} {}

  Numbers numbers;
  DeviceBuffer<std::byte> device;
  CudaMatrix matrix;
};

// Some rows and what they are multiplied by.
struct Case {
  Case(int n, const Weights& weights)
      : num_rows(n),
        x(RandomNumbers(n * weights.matrix.num_cols, 1, weights.matrix.dtype,
                        n)),
        device_x(Upload(x.bytes)),
        w(weights.numbers.widened),
        matrix(weights.matrix) {}

  int num_rows;
  Numbers x;
  DeviceBuffer<std::byte> device_x;
  std::span<const float> w;
  CudaMatrix matrix;
};

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
    auto matmul = CudaMatMul::Create(*device, kMaxRows, kMaxOutputs);
    EXPECT_TRUE(matmul.ok()) << matmul.status();
    matmul_ = std::move(*matmul);
    stream_ = std::move(*CudaStream::Create());
  }

  // What Run leaves in memory that held `before` (repeated).
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
  // The same into poisoned memory, the bytes after the result left alone.
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

// The exact sums of a few rows of x, and how far off a float32 sum may be.
struct Sums {
  std::vector<int> rows;
  std::vector<double> values;   // [rows.size(), num_outputs]
  std::vector<double> margins;  // the same
};

// Half a unit in the last place, relative.
double RoundingOf(DType dtype) {
  return dtype == DType::kFloat32    ? 0x1p-24
         : dtype == DType::kBFloat16 ? 0x1p-8
                                     : 0x1p-11;
}

// Lengths of the rows of a matrix.
std::vector<double> Norms(std::span<const float> rows, int num_cols) {
  std::vector<double> norms;
  for (size_t begin = 0; begin < rows.size(); begin += num_cols) {
    double sum = 0;
    for (const float value : rows.subspan(begin, num_cols)) {
      sum += double{value} * value;
    }
    norms.push_back(std::sqrt(sum));
  }
  return norms;
}

Sums ExactSums(const Case& c) {
  const int num_cols = c.matrix.num_cols;
  Sums sums;
  std::vector<float> x;
  for (int row = 0; row < c.num_rows; ++row) {
    // Many rows: the first, the last and some between them.
    const int stride = c.num_rows <= 9 ? 1 : c.num_rows <= 40 ? 7 : 37;
    if (row % stride != 0 && row + 1 != c.num_rows) continue;
    sums.rows.push_back(row);
    const auto begin = c.x.widened.begin() + row * num_cols;
    x.insert(x.end(), begin, begin + num_cols);
  }
  sums.values = reference::MatMul(x, c.w, num_cols);
  // float32: a rounding a step. Else products are exact, and multipliers add
  // sixteen at a time, cutting off rather than rounding.
  const double roundings =
      c.matrix.dtype == DType::kFloat32 ? num_cols : 2 * (num_cols / 16.0 + 16);
  // The products' sizes sum up to no more than the lengths' product.
  const std::vector<double> w_norms = Norms(c.w, num_cols);
  for (const double x_norm : Norms(x, num_cols)) {
    for (const double w_norm : w_norms) {
      sums.margins.push_back(x_norm * w_norm * roundings * 0x1p-24);
    }
  }
  return sums;
}

void ExpectSums(const Sums& sums, int width, DType out_type, double before,
                const std::vector<float>& out) {
  for (size_t i = 0; i < sums.values.size(); ++i) {
    const double expected = before + sums.values[i];
    const double margin =
        sums.margins[i] + std::abs(expected) * RoundingOf(out_type) + 0x1p-25;
    const size_t at = size_t(sums.rows[i / width]) * width + i % width;
    ASSERT_NEAR(out[at], expected, margin)
        << "row " << at / width << " output " << at % width;
  }
}

double Silu(double x) { return x / (1 + std::exp(-x)); }

// Gates and ups may have been rounded to the dtype before they are multiplied.
void ExpectSiluMul(const Sums& sums, const CudaMatrix& w,
                   const std::vector<float>& out) {
  const double rounding = RoundingOf(w.dtype);
  const int width = w.num_rows / 2;
  for (size_t i = 0; i < sums.rows.size() * width; ++i) {
    const size_t gate_at =
        i / width * w.num_rows + i % width / 8 * 16 + i % width % 8;
    const double gate = sums.values[gate_at];
    const double up = sums.values[gate_at + 8];
    const double gate_margin =
        sums.margins[gate_at] + std::abs(gate) * rounding;
    const double up_margin =
        sums.margins[gate_at + 8] + std::abs(up) * rounding;
    const double expected = Silu(gate) * up;
    // silu's slope is at most 1.1; its exp is good to 2^-20.
    const double margin = 1.1 * gate_margin * (std::abs(up) + up_margin) +
                          std::abs(Silu(gate)) * up_margin +
                          std::abs(expected) * (rounding + 0x1p-20) + 0x1p-25;
    const size_t at = size_t(sums.rows[i / width]) * width + i % width;
    ASSERT_NEAR(out[at], expected, margin)
        << "row " << at / width << " output " << at % width;
  }
}

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
                          Size{272, 8200}, Size{6150, 264}, Size{32003, 64})));

TEST_P(CudaMatMulSizesGpuTest, EveryEpilogueIsAsNearAsItsTypeAllows) {
  const auto [dtype, size] = GetParam();
  const Weights weights(size.num_outputs, size.num_cols, dtype);
  // Few: more than 16 rows of few weights alone, as those cost a tool most.
  const bool is_small = size.num_outputs * size.num_cols < 1'000'000;
  for (const int n : Cases(Rows{1, 2, 5, 8, 9, 16, 31, 32, 33, 128, 300},
                           is_small ? Rows{5, 16, 33} : Rows{5, 16})) {
    SCOPED_TRACE(Concat("n ", n));
    const Case c(n, weights);
    const Sums sums = ExactSums(c);
    const int width = size.num_outputs;
    ExpectSums(sums, width, dtype, 0, Product(c, CudaEpilogue::kStore));
    ExpectSums(sums, width, DType::kFloat32, 0,
               Product(c, CudaEpilogue::kStoreFloat));
    Numbers before;
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

// Few outputs of long sums, which an H200 sums in two parts: one, two and three
// tiles of sixteen outputs a block.
TEST_F(CudaMatMulGpuTest, PartsOfLongSumsMeet) {
  for (const int num_outputs : {300, 4100, 6150}) {
    const Weights weights(num_outputs, 3080, DType::kBFloat16);
    for (const int n : Cases(Rows{3, 8, 13}, Rows{8})) {
      const Case c(n, weights);
      ExpectSums(ExactSums(c), num_outputs, DType::kFloat32, 0,
                 Product(c, CudaEpilogue::kStoreFloat));
    }
  }
}

// What AddLater has added and what it has left to add are the product, for
// shapes of one part and of several.
TEST_F(CudaMatMulGpuTest, WhatIsAddedLaterMakesTheProduct) {
  int most = 0;
  for (const auto& [num_outputs, num_cols] :
       {Size{768, 3072}, Size{1040, 1024}, Size{100, 40}, Size{2304, 768}}) {
    const Weights weights(num_outputs, num_cols, DType::kBFloat16);
    for (const int n :
         Cases(Rows{8, 17, 32, 128, 300, 1024}, Rows{8, 32, 300})) {
      SCOPED_TRACE(Concat(n, " x ", num_cols, " x ", num_outputs));
      const Case c(n, weights);
      const int size = n * num_outputs;
      Numbers before;
      for (int i = 0; i < size; ++i) Append(3, DType::kFloat32, before);
      DeviceBuffer<std::byte> residual;
      const auto add_later = [&] {
        residual = Upload(before.bytes);
        return matmul_->AddLater(c.device_x.data(), n, c.matrix,
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

// What SiluMul reads of scratch cuBLASLt has written, all of it: NaN that was
// there before reaches nothing.
TEST_F(CudaMatMulGpuTest, NothingOldInScratchReachesGatesAndUps) {
  const Weights wide(768, 3072, DType::kBFloat16);
  const Case divided(300, wide);
  const DeviceBuffer<std::byte> residual =
      Upload(std::vector<std::byte>(size_t{4} * 300 * 768));
  const auto left = matmul_->AddLater(
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

TEST_F(CudaMatMulGpuTest, ARowHasTheSameBitsAtAnyPlaceAndInEveryCall) {
  for (const DType dtype :
       {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
    for (const int num_cols : Cases(Rows{768, 3072}, Rows{768})) {
      const int num_outputs = 784;
      const Weights weights(num_outputs, num_cols, dtype);
      for (const int n :
           Cases(Rows{2, 5, 8, 12, 16, 27, 32, 64, 300}, Rows{2, 12, 32})) {
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

// What a kernel reads is what the one before it wrote, although it has begun
// earlier; and a captured graph does what its calls do.
TEST_F(CudaMatMulGpuTest, ChainsGiveTheSameBitsStepByStepAndReplayed) {
  constexpr int kCols = 1024;
  const int length = Cases(20, 4);
  const Weights weights(kCols, kCols, DType::kBFloat16);
  for (const int n : Cases(Rows{1, 8, 16, 32, 100}, Rows{8, 32})) {
    const Case c(n, weights);
    auto run = [&](bool captured, bool waits) {
      DeviceBuffer<std::byte> a = Upload(c.x.bytes);
      DeviceBuffer<std::byte> b = Upload(c.x.bytes);
      const auto enqueue = [&]() -> absl::Status {
        for (int i = 0; i < length; ++i) {
          RETURN_IF_ERROR(matmul_->Run(a.data(), n, c.matrix,
                                       CudaEpilogue::kStore, b.data(),
                                       stream_.get()));
          if (waits) cudaStreamSynchronize(stream_.get());
          std::swap(a, b);
        }
        return absl::OkStatus();
      };
      if (captured) {
        auto graph = CaptureGraph(stream_.get(), enqueue);
        EXPECT_TRUE(graph.ok()) << graph.status();
        cudaGraphLaunch(graph->get(), stream_.get());
      } else {
        EXPECT_TRUE(enqueue().ok());
      }
      EXPECT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
      return Download(a);
    };
    const auto expected = run(false, true);
    for (int repeat = 0; repeat < Cases(5, 1); ++repeat) {
      ASSERT_EQ(run(false, false), expected) << "n " << n;
      ASSERT_EQ(run(true, false), expected) << "n " << n;
    }
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
