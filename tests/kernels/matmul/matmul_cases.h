// Random products, their exact sums, and how far from those a kernel may be.
#pragma once

#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "base/cuda.h"
#include "base/load_as_float.h"
#include "kernels/matmul/cuda_matmul.h"
#include "kernels/matmul/matmul.h"
#include "tests/device_arrays.h"

namespace espalier::testing {

inline uint16_t HalfBits(float value, DType dtype) {
  if (dtype == DType::kFloat16) {
    return std::bit_cast<uint16_t>(__float2half_rn(value));
  }
  const uint32_t bits = std::bit_cast<uint32_t>(value);  // finite
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// Numbers of a dtype, and the same exactly as float32.
struct MatrixNumbers {
  std::vector<std::byte> bytes;
  std::vector<float> widened;
};

inline void Append(float value, DType dtype, MatrixNumbers& numbers) {
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

inline MatrixNumbers RandomNumbers(int count, float size, DType dtype,
                                   int seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, size);
  MatrixNumbers numbers;
  for (int i = 0; i < count; ++i) Append(normal(random), dtype, numbers);
  return numbers;
}

inline std::vector<float> Widened(std::span<const std::byte> bytes,
                                  DType dtype) {
  std::vector<float> values;
  for (size_t i = 0; i < bytes.size(); i += NumBytes(dtype)) {
    values.push_back(LoadAsFloat(&bytes[i], dtype));
  }
  return values;
}

inline DeviceBuffer<std::byte> Upload(std::span<const std::byte> bytes) {
  auto buffer = DeviceBuffer<std::byte>::Create(bytes.size());
  EXPECT_TRUE(buffer.ok());
  EXPECT_EQ(cudaMemcpy(buffer->data(), bytes.data(), bytes.size(),
                       cudaMemcpyHostToDevice),
            cudaSuccess);
  // The copy may still be under way, and our streams do not wait for it.
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  return std::move(*buffer);
}

inline std::vector<std::byte> Download(const DeviceBuffer<std::byte>& buffer) {
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

  MatrixNumbers numbers;
  DeviceBuffer<std::byte> device;
  CudaMatrix matrix;
};

// Some rows and their matrix.
struct Case {
  template <typename AnyWeights>  // Weights, or Fp8Weights of fp8_cases.h
  Case(int n, const AnyWeights& weights)
      : num_rows(n),
        x(RandomNumbers(n * weights.matrix.num_cols, 1, weights.matrix.dtype,
                        n)),
        device_x(Upload(x.bytes)),
        w(weights.numbers.widened),
        matrix(weights.matrix) {}

  int num_rows;
  MatrixNumbers x;
  DeviceBuffer<std::byte> device_x;
  std::span<const float> w;
  CudaMatrix matrix;
};

// The exact sums of a few rows of x, and how far off a float32 sum may be.
struct Sums {
  std::vector<int> rows;
  std::vector<double> values;   // [rows.size(), num_outputs]
  std::vector<double> margins;  // the same
};

// Half a unit in the last place, relative.
inline double RoundingOf(DType dtype) {
  return dtype == DType::kFloat32    ? 0x1p-24
         : dtype == DType::kBFloat16 ? 0x1p-8
                                     : 0x1p-11;
}

// Lengths of the rows of a matrix.
inline std::vector<double> Norms(std::span<const float> rows, int num_cols) {
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

inline Sums ExactSums(const Case& c) {
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

inline void ExpectSums(const Sums& sums, int width, DType out_type,
                       double before, const std::vector<float>& out) {
  for (size_t i = 0; i < sums.values.size(); ++i) {
    const double expected = before + sums.values[i];
    const double margin =
        sums.margins[i] + std::abs(expected) * RoundingOf(out_type) + 0x1p-25;
    const size_t at = size_t(sums.rows[i / width]) * width + i % width;
    ASSERT_NEAR(out[at], expected, margin)
        << "row " << at / width << " output " << at % width;
  }
}

inline double Silu(double x) { return x / (1 + std::exp(-x)); }

// Gates and ups may have been rounded to the dtype before they are multiplied.
inline void ExpectSiluMul(const Sums& sums, const CudaMatrix& w,
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

// Expects the same bits from a chain of products, each of which reads the
// previous output: one by one, without waiting in between, and from a captured
// graph.
//   enqueue  (from, to): one product; both have the size of `x`
template <typename Enqueue>
void ExpectChainsAreTheSame(const std::vector<std::byte>& x, int length,
                            int num_repeats, cudaStream_t stream,
                            const Enqueue& enqueue) {
  const auto run = [&](bool captured, bool waits) {
    DeviceBuffer<std::byte> a = Upload(x), b = Upload(x);
    const auto enqueue_all = [&]() -> absl::Status {
      for (int i = 0; i < length; ++i) {
        RETURN_IF_ERROR(enqueue(a.data(), b.data()));
        if (waits) cudaStreamSynchronize(stream);
        std::swap(a, b);
      }
      return absl::OkStatus();
    };
    if (captured) {
      auto graph = CaptureGraph(stream, enqueue_all);
      EXPECT_TRUE(graph.ok()) << graph.status();
      cudaGraphLaunch(graph->get(), stream);
    } else {
      EXPECT_TRUE(enqueue_all().ok());
    }
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    return Download(a);
  };
  const auto expected = run(false, true);
  for (int repeat = 0; repeat < num_repeats; ++repeat) {
    ASSERT_EQ(run(false, false), expected);
    ASSERT_EQ(run(true, false), expected);
  }
}

}  // namespace espalier::testing
