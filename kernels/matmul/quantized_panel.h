// Panels of quantised weights (weight_format.h): group after group of inputs,
//
//   [ codes | scales ]
//
// where the codes are those of kPanelWidth outputs, four inputs at a time,
//
//   kInt8  [depth / 4][kPanelWidth][4]  u8: q + 128
//   kInt4  [depth / 8][kPanelWidth][4]  u8: q + 8 of the first four inputs in
//                                       the low bits, of the next in the high
//
// and the scales [kPanelWidth] bf16. A short last group is padded to a multiple
// of 8 inputs, and a last panel to kPanelWidth outputs, with q = 0. Scales of
// padding outputs are 0 too.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/matmul/matmul_tile.h"
#include "kernels/matmul/weight_format.h"

namespace espalier {

inline constexpr int kQuantDepthUnit = 8;  // inputs

constexpr int PaddedDepth(int depth) {
  return (depth + kQuantDepthUnit - 1) / kQuantDepthUnit * kQuantDepthUnit;
}

// Returns the offset of the codes: code = q + offset.
constexpr int QuantOffset(WeightFormat format) {
  return format == WeightFormat::kInt4 ? 8 : 128;
}

// Returns the size of a group of `depth` inputs.
constexpr size_t QuantGroupBytes(WeightFormat format, int depth) {
  const size_t codes = size_t(PaddedDepth(depth)) * kPanelWidth;
  return (format == WeightFormat::kInt4 ? codes / 2 : codes) + 2 * kPanelWidth;
}

// Returns the size of the groups of the first `num_inputs` inputs.
constexpr size_t QuantBytesBefore(WeightFormat format, int num_inputs) {
  const int group = QuantGroupSize(format);
  const int rest = num_inputs % group;
  return num_inputs / group * QuantGroupBytes(format, group) +
         (rest > 0 ? QuantGroupBytes(format, rest) : 0);
}

// Writes one group of a panel.
//   weights  [num_rows, depth]  rows `stride` numbers apart; num_rows at most
//            kPanelWidth
//   out      QuantGroupBytes(format, depth)
void QuantizeGroup(const float* weights, int num_rows, int depth, int stride,
                   WeightFormat format, std::byte* out);

}  // namespace espalier
