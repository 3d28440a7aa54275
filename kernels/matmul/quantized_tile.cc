#include "kernels/matmul/quantized_tile.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>

// Compiles the rest once for each instruction set, including those with dot
// products of bytes; the order matters.
// clang-format off
#define ESPALIER_WANT_BYTE_PRODUCTS
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul/quantized_tile.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using QuantFloats = hn::ScalableTag<float>;
using QuantInts = hn::RebindToSigned<QuantFloats>;
using QuantUints = hn::RebindToUnsigned<QuantFloats>;
constexpr int kQuantLanes = hn::MaxLanes(QuantFloats());
constexpr int kQuantVectors = 2;  // vectors of outputs, side by side
static_assert(kPanelWidth % (kQuantVectors * kQuantLanes) == 0);

// Integer and float sums are kRows * 2 vectors each.
#if HWY_ARCH_ARM_A64 || (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3)
constexpr int kMaxQuantRows = 6;
#else
constexpr int kMaxQuantRows = 3;
#endif
static_assert(kMaxQuantRows <= kQuantTileRowsLimit);

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
// The intrinsic needs AVX512_VNNI, which the target attributes do not enable;
// older releases of Highway do not enable it for HWY_AVX3_DL either.
HWY_INLINE hn::Vec<QuantInts> AddByteProductsAtOnce(hn::Vec<QuantUints> weights,
                                                    hn::Vec<QuantInts> inputs,
                                                    hn::Vec<QuantInts> sum) {
  asm("vpdpbusd %2, %1, %0"
      : "+v"(sum.raw)
      : "v"(weights.raw), "v"(inputs.raw));
  return sum;
}
#endif

// Adds the products of four weights, unsigned bytes, and four inputs, signed
// ones, to each lane, exactly.
template <bool kAtOnce>
HWY_INLINE hn::Vec<QuantInts> AddByteProducts(hn::Vec<QuantUints> weights,
                                              hn::Vec<QuantInts> inputs,
                                              hn::Vec<QuantInts> sum) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  if constexpr (kAtOnce) return AddByteProductsAtOnce(weights, inputs, sum);
#endif
#if HWY_TARGET == HWY_SCALAR
  const QuantInts d;
  const auto add = [&](auto w, auto x) {
    const auto byte = hn::And(w, hn::Set(QuantUints(), 255u));
    sum = hn::Add(sum, hn::Mul(hn::BitCast(d, byte), hn::ShiftRight<24>(x)));
  };
  add(weights, hn::ShiftLeft<24>(inputs));
  add(hn::ShiftRight<8>(weights), hn::ShiftLeft<16>(inputs));
  add(hn::ShiftRight<16>(weights), hn::ShiftLeft<8>(inputs));
  add(hn::ShiftRight<24>(weights), inputs);
  return sum;
#else
  // Splits each lane into bytes 0 and 2, and bytes 1 and 3, as 16-bit numbers.
  const QuantInts d;
  const hn::Repartition<int16_t, QuantFloats> shorts;
  const hn::RebindToUnsigned<decltype(shorts)> ushorts;
  const auto w = hn::BitCast(ushorts, weights);
  const auto x = hn::BitCast(shorts, inputs);
  const auto w_even =
      hn::BitCast(shorts, hn::And(w, hn::Set(ushorts, uint16_t{255})));
  const auto w_odd = hn::BitCast(shorts, hn::ShiftRight<8>(w));
  const auto x_even = hn::ShiftRight<8>(hn::ShiftLeft<8>(x));
  const auto x_odd = hn::ShiftRight<8>(x);
  auto others = hn::Zero(d);
  auto products =
      hn::ReorderWidenMulAccumulate(d, w_even, x_even, hn::Zero(d), others);
  products = hn::ReorderWidenMulAccumulate(d, w_odd, x_odd, products, others);
  return hn::Add(sum, hn::RearrangeToOddPlusEven(products, others));
#endif
}

// Adds four inputs' products, from `k` on, to the sums of each row.
template <bool kAtOnce, int kRows>
HWY_INLINE void AddQuad(const QuantizedInputs* x, int k,
                        const hn::Vec<QuantUints> (&weights)[kQuantVectors],
                        hn::Vec<QuantInts> (&sums)[kRows][kQuantVectors]) {
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    int32_t quad;
    hwy::CopyBytes<4>(x[r].q + k, &quad);
    const auto inputs = hn::Set(QuantInts(), quad);
    HWY_UNROLL(2)
    for (int v = 0; v < kQuantVectors; ++v) {
      sums[r][v] = AddByteProducts<kAtOnce>(weights[v], inputs, sums[r][v]);
    }
  }
}

// Computes the sums of inputs [begin, end), a group, for kQuantVectors vectors
// of outputs, from `codes` on. The next panel is `to_next` bytes further.
template <int kRows, bool kIsInt4, bool kAtOnce>
HWY_INLINE void SumGroup(const QuantizedInputs* x, int begin, int end,
                         const std::byte* codes, ptrdiff_t to_next,
                         hn::Vec<QuantInts> (&sums)[kRows][kQuantVectors]) {
  const QuantUints d;
  const auto low_bits = hn::Set(d, 0x0F0F0F0Fu);
  for (int k = begin; k < end; k += kIsInt4 ? 8 : 4) {
    hn::Vec<QuantUints> weights[kQuantVectors];
    HWY_UNROLL(2)
    for (int v = 0; v < kQuantVectors; ++v) {
      weights[v] = hn::LoadU(
          d, reinterpret_cast<const uint32_t*>(codes) + v * kQuantLanes);
      // Once a cache line.
      if (4 * v * kQuantLanes % kCacheLineBytes == 0) {
        const std::byte* const line = codes + 4 * v * kQuantLanes;
        PrefetchNear(line, kNearBytes);
        PrefetchFar(line + to_next);
      }
    }
    if constexpr (kIsInt4) {
      hn::Vec<QuantUints> next[kQuantVectors];
      HWY_UNROLL(2)
      for (int v = 0; v < kQuantVectors; ++v) {
        next[v] = hn::And(hn::ShiftRight<4>(weights[v]), low_bits);
        weights[v] = hn::And(weights[v], low_bits);
      }
      AddQuad<kAtOnce>(x, k, weights, sums);
      AddQuad<kAtOnce>(x, k + 4, next, sums);
    } else {
      AddQuad<kAtOnce>(x, k, weights, sums);
    }
    codes += 4 * kPanelWidth;
  }
}

HWY_INLINE hn::Vec<QuantFloats> LoadScales(const std::byte* scales) {
  const hn::Rebind<hwy::bfloat16_t, QuantFloats> bfloats;
  return hn::PromoteTo(
      QuantFloats(),
      hn::LoadU(bfloats, reinterpret_cast<const hwy::bfloat16_t*>(scales)));
}

// Multiplies kRows rows by kQuantVectors vectors of outputs, from `column` on.
template <int kRows, bool kIsInt4, bool kAtOnce>
void MultiplyQuantizedColumns(const QuantizedTile& tile, int column) {
  constexpr WeightFormat kFormat =
      kIsInt4 ? WeightFormat::kInt4 : WeightFormat::kInt8;
  constexpr int kGroup = QuantGroupSize(kFormat);
  const QuantFloats d;
  const QuantInts ints;
  const int first = column % kPanelWidth;  // output of the panel
  const int panel = column / kPanelWidth;
  const std::byte* group = tile.panels + panel * tile.panel_bytes;
  const ptrdiff_t to_next = panel + 1 == tile.num_panels
                                ? tile.next_panels - group
                                : static_cast<ptrdiff_t>(tile.panel_bytes);
  hn::Vec<QuantFloats> y[kRows][kQuantVectors];
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(2)
    for (int v = 0; v < kQuantVectors; ++v) {
      const float* from = tile.y + r * tile.y_stride + column + v * kQuantLanes;
      y[r][v] = tile.accumulate ? hn::LoadU(d, from) : hn::Zero(d);
    }
  }
  for (int begin = 0, g = 0; begin < tile.depth; begin += kGroup, ++g) {
    const int depth = std::min(kGroup, tile.depth - begin);
    hn::Vec<QuantInts> sums[kRows][kQuantVectors];
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(2)
      for (int v = 0; v < kQuantVectors; ++v) {
        sums[r][v] = hn::Set(ints, -QuantOffset(kFormat) * tile.x[r].sums[g]);
      }
    }
    SumGroup<kRows, kIsInt4, kAtOnce>(tile.x, begin, begin + PaddedDepth(depth),
                                      group + 4 * first, to_next, sums);
    group += QuantGroupBytes(kFormat, depth);
    const std::byte* scales = group - 2 * kPanelWidth + 2 * first;
    HWY_UNROLL(2)
    for (int v = 0; v < kQuantVectors; ++v) {
      const auto s = LoadScales(scales + 2 * v * kQuantLanes);
      HWY_UNROLL(8)
      for (int r = 0; r < kRows; ++r) {
        const auto t = hn::Set(d, tile.x[r].scales[g]);
        const auto n = hn::ConvertTo(d, sums[r][v]);
        y[r][v] = hn::Add(y[r][v], hn::Mul(hn::Mul(s, n), t));
      }
    }
  }
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(2)
    for (int v = 0; v < kQuantVectors; ++v) {
      hn::StoreU(y[r][v], d,
                 tile.y + r * tile.y_stride + column + v * kQuantLanes);
    }
  }
}

template <int kRows, bool kIsInt4, bool kAtOnce>
void MultiplyQuantizedRows(const QuantizedTile& tile) {
  for (int column = 0; column < tile.num_panels * kPanelWidth;
       column += kQuantVectors * kQuantLanes) {
    MultiplyQuantizedColumns<kRows, kIsInt4, kAtOnce>(tile, column);
  }
}

// MultiplyQuantizedRows<1>, MultiplyQuantizedRows<2>, ...
template <bool kIsInt4, bool kAtOnce, int... kIndices>
void MultiplyAnyQuantizedRows(const QuantizedTile& tile,
                              std::integer_sequence<int, kIndices...>) {
  using Function = void (*)(const QuantizedTile&);
  static constexpr Function kFunctions[] = {
      &MultiplyQuantizedRows<kIndices + 1, kIsInt4, kAtOnce>...};
  kFunctions[tile.num_rows - 1](tile);
}

// Returns the largest magnitude of x's numbers, as bits: non-finite numbers are
// above all others.
HWY_INLINE int32_t LargestMagnitude(const float* x, int depth) {
  const QuantInts ints;
  const QuantFloats d;
  const auto magnitude = hn::Set(ints, 0x7FFFFFFF);
  auto most = hn::Zero(ints);
  int k = 0;
  for (; k + kQuantLanes <= depth; k += kQuantLanes) {
    const auto bits = hn::BitCast(ints, hn::LoadU(d, x + k));
    most = hn::Max(most, hn::And(bits, magnitude));
  }
  int32_t result = hn::GetLane(hn::MaxOfLanes(ints, most));
  for (; k < depth; ++k) {
    result = std::max(result, std::bit_cast<int32_t>(x[k]) & 0x7FFFFFFF);
  }
  return result;
}

// Writes q' of x's numbers, and returns their sum.
HWY_INLINE int32_t RoundInputs(const float* x, int depth, float inverse,
                               int8_t* q) {
  const QuantFloats d;
  const QuantInts ints;
  const hn::Rebind<int8_t, QuantFloats> bytes;
  const auto factor = hn::Set(d, inverse);
  auto sums = hn::Zero(ints);
  int k = 0;
  for (; k + kQuantLanes <= depth; k += kQuantLanes) {
    const auto rounded = hn::NearestInt(hn::Mul(hn::LoadU(d, x + k), factor));
    sums = hn::Add(sums, rounded);
    hn::StoreU(hn::DemoteTo(bytes, rounded), bytes, q + k);
  }
  int32_t sum = hn::GetLane(hn::SumOfLanes(ints, sums));
  for (; k < depth; ++k) {
    // As NearestInt: the sum's lowest bits are the nearest integer.
    const float sum_of_rounding = x[k] * inverse + 0x1.8p23f;
    q[k] = static_cast<int8_t>(std::bit_cast<uint32_t>(sum_of_rounding));
    sum += q[k];
  }
  return sum;
}

void QuantizeInputs(const float* x, int depth, WeightFormat format,
                    QuantizedInputs* out) {
  // Below this the inverse of a scale could be infinite.
  constexpr int32_t kSmallestScaled = std::bit_cast<int32_t>(0x1p-100f);
  constexpr int32_t kInfinity = 0x7F800000;
  const int group = QuantGroupSize(format);
  for (int begin = 0, g = 0; begin < depth; begin += group, ++g) {
    const int size = std::min(group, depth - begin);
    const int padded = PaddedDepth(size);
    const int32_t most = LargestMagnitude(x + begin, size);
    std::fill_n(out->q + begin, padded, int8_t{0});
    out->sums[g] = 0;
    out->scales[g] =
        most < kInfinity ? 0 : std::numeric_limits<float>::quiet_NaN();
    if (most < kSmallestScaled || most >= kInfinity) continue;
    const float largest = std::bit_cast<float>(most);
    out->scales[g] = largest / 127.0f;
    out->sums[g] =
        RoundInputs(x + begin, size, 127.0f / largest, out->q + begin);
  }
}

int MaxQuantizedTileRows() { return kMaxQuantRows; }

template <bool kAtOnce>
void MultiplyQuantizedTileBy(const QuantizedTile& tile) {
  const std::make_integer_sequence<int, kMaxQuantRows> indices;
  if (tile.format == WeightFormat::kInt4) {
    MultiplyAnyQuantizedRows<true, kAtOnce>(tile, indices);
  } else {
    MultiplyAnyQuantizedRows<false, kAtOnce>(tile, indices);
  }
}

void MultiplyQuantizedTile(const QuantizedTile& tile) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
  MultiplyQuantizedTileBy<true>(tile);
#elif HWY_ARCH_X86 && HWY_TARGET == HWY_AVX3
  // Cascade Lake has AVX512_VNNI, but not all features of HWY_AVX3_DL.
  static const bool has_byte_products = __builtin_cpu_supports("avx512vnni");
  if (has_byte_products) return MultiplyQuantizedTileBy<true>(tile);
  MultiplyQuantizedTileBy<false>(tile);
#else
  MultiplyQuantizedTileBy<false>(tile);
#endif
}

}  // namespace espalier::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier {

HWY_EXPORT(QuantizeInputs);
HWY_EXPORT(MaxQuantizedTileRows);
HWY_EXPORT(MultiplyQuantizedTile);

void QuantizeInputs(const float* x, int depth, WeightFormat format,
                    QuantizedInputs* out) {
  HWY_DYNAMIC_DISPATCH(QuantizeInputs)(x, depth, format, out);
}
int MaxQuantizedTileRows() {
  return HWY_DYNAMIC_DISPATCH(MaxQuantizedTileRows)();
}
void MultiplyTile(const QuantizedTile& tile) {
  HWY_DYNAMIC_DISPATCH(MultiplyQuantizedTile)(tile);
}

}  // namespace espalier
#endif  // HWY_ONCE
