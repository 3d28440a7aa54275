#include <array>
#include <cstdint>
#include <utility>

#include "kernels/matmul/matmul_tile.h"

// Compiles what follows once for each instruction set; the order matters.
// clang-format off
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul/matmul_tile_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::ScalableTag<float>;
constexpr int kLanes = hn::MaxLanes(Floats());

// Sums are kRows * 2 vectors; two more hold weights and one a broadcast x.
// AVX-512 (of x86 targets the lower bits are the better ones) and 64-bit Arm
// have 32 registers, the others 16.
#if HWY_ARCH_ARM_A64 || (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3)
constexpr int kMaxRows = 12;
#else
constexpr int kMaxRows = 6;
#endif
static_assert(kMaxRows <= kTileRowsLimit);

// To hide the latency of a multiply-add takes about 8 independent chains (4
// cycles, 2 a cycle). One or two rows come nearer to that with four vectors;
// from three on, two vectors a row give 6 and more.
constexpr int NumVectors(int num_rows) { return num_rows <= 2 ? 4 : 2; }

HWY_INLINE hn::Vec<Floats> LoadWeights(const float* w) {
  return hn::LoadU(Floats(), w);
}
HWY_INLINE hn::Vec<Floats> LoadWeights(const hwy::bfloat16_t* w) {
  const hn::Rebind<hwy::bfloat16_t, Floats> bfloats;
  return hn::PromoteTo(Floats(), hn::LoadU(bfloats, w));
}
HWY_INLINE hn::Vec<Floats> LoadWeights(const hwy::float16_t* w) {
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2
  // Without F16C Highway's own takes infinities and NaN for numbers. As
  // HalfToFloat (base/load_as_float.h).
  const Floats d;
  const hn::RebindToUnsigned<Floats> bits;
  const hn::Rebind<uint16_t, Floats> halves;
  const auto half = hn::PromoteTo(
      bits, hn::LoadU(halves, reinterpret_cast<const uint16_t*>(w)));
  const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(bits, 0x8000u)));
  const auto magnitude =
      hn::ShiftLeft<13>(hn::And(half, hn::Set(bits, 0x7FFFu)));
  const auto scaled = hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p112f));
  const auto special =
      hn::BitCast(d, hn::Or(magnitude, hn::Set(bits, 0x7F800000u)));
  const auto is_special = hn::RebindMask(
      d, hn::Eq(hn::And(half, hn::Set(bits, 0x7C00u)), hn::Set(bits, 0x7C00u)));
  return hn::Or(hn::IfThenElse(is_special, special, scaled),
                hn::BitCast(d, sign));
#else
  const hn::Rebind<hwy::float16_t, Floats> halves;
  return hn::PromoteTo(Floats(), hn::LoadU(halves, w));
#endif
}

// kRows rows times kVectors vectors of outputs, from `column` of the tile on.
template <int kRows, int kVectors, typename W>
void MultiplyColumns(const MatMulTile& tile, int column) {
  const Floats d;
  const W* w[kVectors];
  hn::Vec<Floats> sums[kRows][kVectors];
  HWY_UNROLL(8)
  for (int v = 0; v < kVectors; ++v) {
    const int c = column + v * kLanes;
    w[v] = reinterpret_cast<const W*>(tile.panels +
                                      c / kPanelWidth * tile.panel_bytes) +
           c % kPanelWidth;
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      sums[r][v] = tile.accumulate
                       ? hn::LoadU(d, tile.y + r * tile.y_stride + c)
                       : hn::Zero(d);
    }
  }
  for (int k = 0; k < tile.depth; ++k) {
    hn::Vec<Floats> weights[kVectors];
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      weights[v] = LoadWeights(w[v] + k * kPanelWidth);
      // Once a cache line.
      if (v * kLanes * sizeof(W) % kCacheLineBytes == 0) {
        hwy::Prefetch(w[v] + k * kPanelWidth + kPrefetchDistance / sizeof(W));
      }
    }
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      const auto x = hn::Set(d, tile.x[r * kTileStride + k]);
      HWY_UNROLL(8)
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = hn::MulAdd(x, weights[v], sums[r][v]);
      }
    }
  }
  HWY_UNROLL(8)
  for (int v = 0; v < kVectors; ++v) {
    const int c = column + v * kLanes;
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      hn::StoreU(sums[r][v], d, tile.y + r * tile.y_stride + c);
    }
  }
}

template <int kRows, typename W>
void MultiplyRows(const MatMulTile& tile) {
  constexpr int kVectors = NumVectors(kRows);
  const int num_columns = tile.num_panels * kPanelWidth;
  int column = 0;
  // From memory one panel after the other comes quicker than two side by side.
  const bool is_wide = kVectors > 2 && tile.is_cached;
  for (; is_wide && column + kVectors * kLanes <= num_columns;
       column += kVectors * kLanes) {
    MultiplyColumns<kRows, kVectors, W>(tile, column);
  }
  for (; column < num_columns; column += 2 * kLanes) {
    MultiplyColumns<kRows, 2, W>(tile, column);
  }
}

// MultiplyRows<1>, MultiplyRows<2>, ...
template <typename W, int... kIndices>
void MultiplyAnyRows(const MatMulTile& tile,
                     std::integer_sequence<int, kIndices...>) {
  using Function = void (*)(const MatMulTile&);
  static constexpr Function kFunctions[] = {&MultiplyRows<kIndices + 1, W>...};
  kFunctions[tile.num_rows - 1](tile);
}

int MaxTileRows() { return kMaxRows; }

void MultiplyTile(const MatMulTile& tile) {
  const std::make_integer_sequence<int, kMaxRows> indices;
  switch (tile.dtype) {
    case DType::kFloat32:
      return MultiplyAnyRows<float>(tile, indices);
    case DType::kBFloat16:
      return MultiplyAnyRows<hwy::bfloat16_t>(tile, indices);
    case DType::kFloat16:
      return MultiplyAnyRows<hwy::float16_t>(tile, indices);
  }
}

}  // namespace espalier::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier {

HWY_EXPORT(MaxTileRows);
HWY_EXPORT(MultiplyTile);

int MaxTileRows() { return HWY_DYNAMIC_DISPATCH(MaxTileRows)(); }
void MultiplyTile(const MatMulTile& tile) {
  HWY_DYNAMIC_DISPATCH(MultiplyTile)(tile);
}

}  // namespace espalier
#endif  // HWY_ONCE
