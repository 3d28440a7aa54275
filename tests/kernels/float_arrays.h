// Arrays of any type on the device, filled from and compared with float32.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "base/cuda.h"
#include "base/load_as_float.h"
#include "tests/status_matchers.h"

namespace espalier::testing {

inline constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16,
                                    DType::kFloat16};
inline constexpr float kPoison = -12345.0f;

// The relative error of one rounding to `dtype`.
inline double Unit(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return 0x1p-24;
    case DType::kBFloat16:
      return 0x1p-8;
    case DType::kFloat16:
      return 0x1p-11;
  }
  return 0;
}

inline std::vector<std::byte> Narrow(const std::vector<float>& values,
                                     DType dtype) {
  std::vector<std::byte> bytes(values.size() * NumBytes(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    std::byte* const to = &bytes[i * NumBytes(dtype)];
    if (dtype == DType::kFloat32) std::memcpy(to, &values[i], 4);
    const __nv_bfloat16 brain = __float2bfloat16_rn(values[i]);
    if (dtype == DType::kBFloat16) std::memcpy(to, &brain, 2);
    const __half half = __float2half_rn(values[i]);
    if (dtype == DType::kFloat16) std::memcpy(to, &half, 2);
  }
  return bytes;
}

inline std::vector<float> Widen(const std::vector<std::byte>& bytes,
                                DType dtype) {
  std::vector<float> values(bytes.size() / NumBytes(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = LoadAsFloat(&bytes[i * NumBytes(dtype)], dtype);
  }
  return values;
}

// Returns the values rounded to `dtype`.
inline std::vector<float> Rounded(const std::vector<float>& values,
                                  DType dtype) {
  return Widen(Narrow(values, dtype), dtype);
}

// An array on the device, written and read as float32 whatever it holds.
class DeviceArray {
 public:
  DeviceArray(const std::vector<float>& values, DType dtype) : dtype_(dtype) {
    const std::vector<std::byte> bytes = Narrow(values, dtype);
    auto buffer = DeviceBuffer<std::byte>::Create(bytes.size());
    EXPECT_OK(buffer);
    buffer_ = *std::move(buffer);
    EXPECT_EQ(cudaMemcpy(data(), bytes.data(), bytes.size(), cudaMemcpyDefault),
              cudaSuccess);
  }
  static DeviceArray Poisoned(size_t size, DType dtype) {
    return DeviceArray(std::vector<float>(size, kPoison), dtype);
  }

  void* data() const { return buffer_.data(); }
  float* floats() const { return reinterpret_cast<float*>(buffer_.data()); }
  std::vector<float> Read() const {
    std::vector<std::byte> bytes(buffer_.size());
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(bytes.data(), data(), bytes.size(), cudaMemcpyDefault),
              cudaSuccess);
    return Widen(bytes, dtype_);
  }

 private:
  DType dtype_;
  DeviceBuffer<std::byte> buffer_;
};

inline DeviceBuffer<int> DeviceInts(const std::vector<int>& values) {
  auto buffer = DeviceBuffer<int>::Create(values.size());
  EXPECT_OK(buffer);
  EXPECT_EQ(cudaMemcpy(buffer->data(), values.data(), buffer->size_bytes(),
                       cudaMemcpyDefault),
            cudaSuccess);
  return *std::move(buffer);
}

// Normal numbers with an outlier here and there.
inline std::vector<float> RandomFloats(size_t count, int seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(count);
  for (size_t i = 0; i < count; ++i) {
    x[i] = normal(random) * (i % 11 == 5 ? 50.0f : 1.0f);
  }
  return x;
}

}  // namespace espalier::testing
