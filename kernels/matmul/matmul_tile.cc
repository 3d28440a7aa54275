#include "kernels/matmul/matmul_tile.h"

#include <array>
#include <cstdint>
#include <utility>

// Compiles the rest once for each instruction set; the order matters.
// clang-format off
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul/matmul_tile.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::ScalableTag<float>;
constexpr int kLanes = hn::MaxLanes(Floats());

// Sums are kRows * 2 vectors; two more hold weights and one a broadcast x.
// AVX-512 (on x86 lower target bits are better) and 64-bit Arm have 32
// registers, the others 16.
#if HWY_ARCH_ARM_A64 || (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3)
constexpr int kMaxRows = 12;
#else
constexpr int kMaxRows = 6;
#endif
static_assert(kMaxRows <= kTileRowsLimit);

// Hiding the latency of a multiply-add takes about 8 independent chains (4
// cycles, 2 a cycle). One or two rows come closer to that with two pairs of
// vectors; from three rows on, one pair a row gives 6 and more.
constexpr int NumPairs(int num_rows) { return num_rows <= 2 ? 2 : 1; }

HWY_INLINE hn::Vec<Floats> LoadWeights(const float* w) {
  return hn::LoadU(Floats(), w);
}
HWY_INLINE hn::Vec<Floats> LoadWeights(const hwy::float16_t* w) {
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2
  // Highway's conversion without F16C treats infinities and NaN as numbers.
  // This is HalfToFloat (base/load_as_float.h).
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

// Two vectors of a panel's row, and the outputs that they belong to: pair p has
// outputs from p * kStep on, and from kSecond after these.
template <typename W>
struct Pairs {
  static constexpr int kStep = 2 * kLanes;
  static constexpr int kSecond = kLanes;

  static HWY_INLINE void Load(const W* w, hn::Vec<Floats>* first,
                              hn::Vec<Floats>* second) {
    *first = LoadWeights(w);
    *second = LoadWeights(w + kLanes);
  }
};

// Loads bf16 weights whose two halves alternate (packed_matrix.h). A bf16 is
// the upper half of its float, so that one shift and one mask convert them, and
// no lane moves to another.
template <>
struct Pairs<hwy::bfloat16_t> {
  static constexpr int kStep = kLanes;
  static constexpr int kSecond = kPanelWidth / 2;

  static HWY_INLINE void Load(const hwy::bfloat16_t* w, hn::Vec<Floats>* first,
                              hn::Vec<Floats>* second) {
    const Floats d;
    const hn::RebindToUnsigned<Floats> bits;
    const auto both = hn::LoadU(bits, reinterpret_cast<const uint32_t*>(w));
    *first = hn::BitCast(d, hn::ShiftLeft<16>(both));
    *second = hn::BitCast(d, hn::And(both, hn::Set(bits, 0xFFFF0000u)));
  }
};

constexpr int kPairsPerPanel = kPanelWidth / (2 * kLanes);

// Multiplies kRows rows by kPairs pairs of vectors of outputs, from pair
// `first` of the tile on.
template <int kRows, int kPairs, typename W>
void MultiplyColumns(const MatMulTile& tile, int first) {
  using Pair = Pairs<W>;
  constexpr int kVectors = 2 * kPairs;
  // Several pairs at once are used only for weights in a cache (MultiplyRows).
  constexpr bool kFetchesFar = kPairs == 1;
  constexpr int kNear =
      sizeof(W) == sizeof(float) ? kNearFloat32Bytes : kNearBytes;
  const Floats d;
  const W* w[kPairs];
  const W* next[kPairs];  // the same place in the next panel
  int column[kVectors];
  hn::Vec<Floats> sums[kRows][kVectors];
  HWY_UNROLL(8)
  for (int p = 0; p < kPairs; ++p) {
    const int panel = (first + p) / kPairsPerPanel;
    const int pair = (first + p) % kPairsPerPanel;
    const std::byte* const bytes = tile.panels + panel * tile.panel_bytes;
    const bool is_last = panel + 1 == tile.num_panels;
    const int first_weight = pair * 2 * kLanes;
    w[p] = reinterpret_cast<const W*>(bytes) + first_weight;
    next[p] = reinterpret_cast<const W*>(is_last ? tile.next_panels
                                                 : bytes + tile.panel_bytes) +
              first_weight;
    column[2 * p] = panel * kPanelWidth + pair * Pair::kStep;
    column[2 * p + 1] = column[2 * p] + Pair::kSecond;
  }
  HWY_UNROLL(8)
  for (int v = 0; v < kVectors; ++v) {
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      sums[r][v] = tile.accumulate
                       ? hn::LoadU(d, tile.y + r * tile.y_stride + column[v])
                       : hn::Zero(d);
    }
  }
  for (int k = 0; k < tile.depth; ++k) {
    hn::Vec<Floats> weights[kVectors];
    HWY_UNROLL(8)
    for (int p = 0; p < kPairs; ++p) {
      const W* const row = w[p] + k * kPanelWidth;
      Pair::Load(row, &weights[2 * p], &weights[2 * p + 1]);
      constexpr int kLine = kCacheLineBytes / sizeof(W);
      for (int i = 0; i < 2 * kLanes; i += kLine) {
        PrefetchNear(row + i, kNear);
        if constexpr (kFetchesFar) PrefetchFar(next[p] + k * kPanelWidth + i);
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
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      hn::StoreU(sums[r][v], d, tile.y + r * tile.y_stride + column[v]);
    }
  }
}

template <int kRows, typename W>
void MultiplyRows(const MatMulTile& tile) {
  constexpr int kPairs = NumPairs(kRows);
  const int num_pairs = tile.num_panels * kPairsPerPanel;
  int pair = 0;
  // From memory, panels in sequence are faster than two side by side.
  const bool is_wide = kPairs > 1 && tile.is_cached;
  for (; is_wide && pair + kPairs <= num_pairs; pair += kPairs) {
    MultiplyColumns<kRows, kPairs, W>(tile, pair);
  }
  for (; pair < num_pairs; ++pair) MultiplyColumns<kRows, 1, W>(tile, pair);
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
