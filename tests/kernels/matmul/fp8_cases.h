// Random products of e4m3 weights.
#pragma once

#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/matmul/fp8.h"
#include "kernels/matmul/fp8_order.h"
#include "tests/kernels/matmul/matmul_cases.h"

namespace espalier::testing {

// Quantized weights in device memory; `numbers` are the dequantized values.
struct Fp8Weights {
  Fp8Weights(int num_outputs, int num_cols)
      : Fp8Weights(
            RandomNumbers(num_outputs * num_cols, 1 / std::sqrt(num_cols),
                          DType::kBFloat16, num_outputs)
                .widened,
            num_outputs, num_cols) {}
  Fp8Weights(const std::vector<float>& weights, int num_outputs, int num_cols) {
    std::vector<std::byte> codes(size_t(num_outputs + kFp8BlockOutputs - 1) /
                                 kFp8BlockOutputs * kFp8BlockOutputs *
                                 num_cols);
    std::vector<uint16_t> scales;
    std::vector<uint8_t> row_codes(num_cols);
    for (int row = 0; row < num_outputs; ++row) {
      const auto from =
          std::span(weights).subspan(size_t(row) * num_cols, num_cols);
      const float scale = Fp8Scale(from);
      scales.push_back(
          static_cast<uint16_t>(std::bit_cast<uint32_t>(scale) >> 16));
      QuantizeFp8(from, scale, row_codes.data());
      const size_t block =
          size_t(row / kFp8BlockOutputs) * kFp8BlockOutputs * num_cols;
      for (int col = 0; col < num_cols; ++col) {
        codes[block + Fp8Offset(row % kFp8BlockOutputs, col)] =
            std::byte{row_codes[col]};
        Append(DequantizeFp8(row_codes[col], scale), DType::kBFloat16, numbers);
      }
    }
    device = Upload(codes);
    device_scales = Upload(std::as_bytes(std::span(scales)));
    matrix = {device.data(), DType::kBFloat16, num_outputs, num_cols,
              reinterpret_cast<const uint16_t*>(device_scales.data())};
  }

  MatrixNumbers numbers;
  DeviceBuffer<std::byte> device;
  DeviceBuffer<std::byte> device_scales;
  CudaMatrix matrix;
};

}  // namespace espalier::testing
