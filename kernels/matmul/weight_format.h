// WeightFormat: the representation of a model's matrices after loading.
//
// kAsStored keeps the numbers of the file. The others quantise: g consecutive
// inputs of an output share a scale s, a bfloat16, and of each weight w an
// integer q is kept,
//
//   kInt8  g = 128  s = bf16(max |w| / 127)
//                   q = clamp(round(w / s), -127, 127)
//
//   kInt4  g = 32   s = bf16(m / -8)
//                   q = clamp(round(w / s), -8, 7)
//
// where m is the weight of largest magnitude in the group, the positive one if
// there are two, and w stands for s * q from then on. Rounding, here and below,
// is to the nearest, ties to even; w / s is w * (1 / s) in float32. A group
// whose weights are all smaller than 2^-100 has zeros for q and s, and one with
// a number that is not finite has NaN for s.
//
// Inputs x of a product are quantised the same way as kInt8's weights, row by
// row and over the same groups, but with a float32 scale t = max |x| / 127 and
// q' = round(x * (127 / max |x|)). An output is then
//
//   y = sum over groups, in ascending order, of (s * n) * t
//   n = sum over a group of q * q', exactly
//
// where each float32 operation rounds once: y is the same bits on every
// processor, in any batch, and with any number of threads.
//
//   kFp8   a scale for all inputs of an output, and e4m3 codes (fp8.h) of
//          bfloat16 weights: products equal those of stored bfloat16 weights.
#pragma once

#include <cstdint>
#include <string_view>

namespace espalier {

enum class WeightFormat : uint8_t { kAsStored, kInt8, kInt4, kFp8 };

constexpr std::string_view NameOf(WeightFormat format) {
  constexpr std::string_view kNames[] = {"stored", "int8", "int4", "fp8"};
  return kNames[static_cast<int>(format)];
}

// Inputs that share a scale, of kInt8 and kInt4; the last group may have fewer.
constexpr int QuantGroupSize(WeightFormat format) {
  return format == WeightFormat::kInt4 ? 32 : 128;
}
inline constexpr int kMaxQuantGroupSize = QuantGroupSize(WeightFormat::kInt8);

}  // namespace espalier
