#include "speech/mel_frames.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <vector>

// Compiles the rest once for each instruction set; the order matters.
// clang-format off
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "speech/mel_frames.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "hwy/contrib/math/math-inl.h"
// clang-format on

#ifndef ESPALIER_SPEECH_MEL_FRAMES_ONCE
#define ESPALIER_SPEECH_MEL_FRAMES_ONCE

namespace espalier {

// A frame of real samples is transformed as half as many complex ones.
inline constexpr int kNumPoints = kFrameSize / 2;

struct Factor {
  double re;
  double im;
};

struct MelFrameTables {
  std::array<double, kFrameSize> window;
  // exp(-2 pi i k / 400) for k in [0, 400).
  std::array<Factor, kFrameSize> roots;
};

inline const MelFrameTables& TablesOfMelFrames() {
  static const MelFrameTables tables = [] {
    MelFrameTables made{};
    for (int i = 0; i < kFrameSize; ++i) {
      const double angle = 2 * std::numbers::pi * i / kFrameSize;
      made.window[i] = 0.5 - 0.5 * std::cos(angle);
      made.roots[i] = {.re = std::cos(angle), .im = -std::sin(angle)};
    }
    return made;
  }();
  return tables;
}

}  // namespace espalier

#endif  // ESPALIER_SPEECH_MEL_FRAMES_ONCE

HWY_BEFORE_NAMESPACE();
namespace espalier::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Doubles = hn::ScalableTag<double>;
using Vec = hn::Vec<Doubles>;

constexpr int kLanes = static_cast<int>(hn::MaxLanes(Doubles()));

// A complex number of each lane's frame.
struct Complex {
  Vec re;
  Vec im;
};

HWY_INLINE Complex operator+(Complex a, Complex b) {
  return {hn::Add(a.re, b.re), hn::Add(a.im, b.im)};
}
HWY_INLINE Complex operator-(Complex a, Complex b) {
  return {hn::Sub(a.re, b.re), hn::Sub(a.im, b.im)};
}
// -i a
HWY_INLINE Complex Turned(Complex a) { return {a.im, hn::Neg(a.re)}; }

HWY_INLINE Complex Times(Complex a, Factor factor) {
  const Doubles d;
  const Vec re = hn::Set(d, factor.re);
  const Vec im = hn::Set(d, factor.im);
  return {hn::NegMulAdd(a.im, im, hn::Mul(a.re, re)),
          hn::MulAdd(a.im, re, hn::Mul(a.re, im))};
}

// Numbers of a transform, [kNumPoints, real or imaginary part, kLanes].
using Points = double[kFrameSize * kLanes];

HWY_INLINE Complex Load(const Points& points, int i) {
  const Doubles d;
  const double* values = points + 2 * kLanes * i;
  return {hn::Load(d, values), hn::Load(d, values + kLanes)};
}
HWY_INLINE void Store(Complex value, int i, Points& points) {
  const Doubles d;
  double* values = points + 2 * kLanes * i;
  hn::Store(value.re, d, values);
  hn::Store(value.im, d, values + kLanes);
}

// Transforms of 4, 5 and 8 numbers, in place.
HWY_INLINE void Transform4(Complex& a, Complex& b, Complex& c, Complex& d) {
  const Complex sum_ac = a + c;
  const Complex difference_ac = a - c;
  const Complex sum_bd = b + d;
  const Complex turned_bd = Turned(b - d);
  a = sum_ac + sum_bd;
  b = difference_ac + turned_bd;
  c = sum_ac - sum_bd;
  d = difference_ac - turned_bd;
}

HWY_INLINE void Transform8(Complex (&x)[8]) {
  constexpr double kHalfRoot = std::numbers::sqrt2 / 2;
  Transform4(x[0], x[2], x[4], x[6]);
  Transform4(x[1], x[3], x[5], x[7]);
  x[3] = Times(x[3], {.re = kHalfRoot, .im = -kHalfRoot});
  x[5] = Turned(x[5]);
  x[7] = Times(x[7], {.re = -kHalfRoot, .im = -kHalfRoot});
  const Complex low[4] = {x[0], x[2], x[4], x[6]};
  const Complex high[4] = {x[1], x[3], x[5], x[7]};
  for (int k = 0; k < 4; ++k) {
    x[k] = low[k] + high[k];
    x[k + 4] = low[k] - high[k];
  }
}

// a + x b + y c
HWY_INLINE Complex Sum(Complex a, double x, Complex b, double y, Complex c) {
  const Doubles d;
  const Vec vx = hn::Set(d, x);
  const Vec vy = hn::Set(d, y);
  return {hn::MulAdd(vy, c.re, hn::MulAdd(vx, b.re, a.re)),
          hn::MulAdd(vy, c.im, hn::MulAdd(vx, b.im, a.im))};
}

HWY_INLINE void Transform5(Complex (&x)[5]) {
  // Cosines and sines of 72 and 144 degrees.
  constexpr double kCos1 = 0.30901699437494742410;
  constexpr double kCos2 = -0.80901699437494742410;
  constexpr double kSin1 = 0.95105651629515357212;
  constexpr double kSin2 = 0.58778525229247312917;
  const Doubles d;
  const Complex zero{hn::Zero(d), hn::Zero(d)};
  const Complex sum1 = x[1] + x[4];
  const Complex sum2 = x[2] + x[3];
  const Complex difference1 = x[1] - x[4];
  const Complex difference2 = x[2] - x[3];
  const Complex even1 = Sum(x[0], kCos1, sum1, kCos2, sum2);
  const Complex even2 = Sum(x[0], kCos2, sum1, kCos1, sum2);
  const Complex odd1 =
      Turned(Sum(zero, kSin1, difference1, kSin2, difference2));
  const Complex odd2 =
      Turned(Sum(zero, kSin2, difference1, -kSin1, difference2));
  x[0] = x[0] + sum1 + sum2;
  x[1] = even1 + odd1;
  x[2] = even2 + odd2;
  x[3] = even2 - odd2;
  x[4] = even1 - odd1;
}

// One pass of Stockham's transform: kRadix times kRest numbers at each of
// kStride offsets, whose results lie beside each other. Of 200 = 8 * 5 * 5.
template <int kRadix, int kRest, int kStride>
HWY_INLINE void TransformPass(const Points& in, Points& out) {
  const MelFrameTables& tables = TablesOfMelFrames();
  for (int rest = 0; rest < kRest; ++rest) {
    for (int offset = 0; offset < kStride; ++offset) {
      Complex x[kRadix];
      for (int j = 0; j < kRadix; ++j) {
        x[j] = Load(in, offset + kStride * (rest + kRest * j));
      }
      if constexpr (kRadix == 8) {
        Transform8(x);
      } else {
        Transform5(x);
      }
      const int to = offset + kStride * kRadix * rest;
      Store(x[0], to, out);
      for (int k = 1; k < kRadix; ++k) {
        // The root of kRadix * kRest to the power rest * k.
        constexpr int kStep = kFrameSize / (kRadix * kRest);
        if (kRest > 1) x[k] = Times(x[k], tables.roots[kStep * rest * k]);
        Store(x[k], to + kStride * k, out);
      }
    }
  }
}

HWY_INLINE Vec SquareOf(Complex a) {
  return hn::MulAdd(a.re, a.re, hn::Mul(a.im, a.im));
}

// Powers [kNumBins, kLanes] of real samples whose even and odd ones were
// transformed as real and imaginary parts.
void WritePowers(const Points& points, double* powers) {
  const Doubles d;
  const MelFrameTables& tables = TablesOfMelFrames();
  const Complex first = Load(points, 0);
  const Vec sum = hn::Add(first.re, first.im);
  const Vec difference = hn::Sub(first.re, first.im);
  hn::Store(hn::Mul(sum, sum), d, powers);
  hn::Store(hn::Mul(difference, difference), d, powers + kNumPoints * kLanes);
  const Vec half = hn::Set(d, 0.5);
  for (int k = 1; k <= kNumPoints / 2; ++k) {
    const Complex a = Load(points, k);
    const Complex mirrored = Load(points, kNumPoints - k);
    const Complex b{mirrored.re, hn::Neg(mirrored.im)};
    const Complex even = a + b;
    const Complex odd = Times(Turned(a - b), tables.roots[k]);
    const Complex low = even + odd;
    const Complex high = even - odd;
    const Vec quarter = hn::Mul(half, half);
    hn::Store(hn::Mul(quarter, SquareOf(low)), d, powers + k * kLanes);
    hn::Store(hn::Mul(quarter, SquareOf(high)), d,
              powers + (kNumPoints - k) * kLanes);
  }
}

// Writes the logarithms of `count` frames, at most kLanes.
void WriteFrameOfEachLane(const float* samples, int count,
                          const MelFilters& filters, float* logs) {
  const Doubles d;
  const MelFrameTables& tables = TablesOfMelFrames();
  HWY_ALIGN Points points;
  HWY_ALIGN Points others;
  for (int lane = 0; lane < kLanes; ++lane) {
    // Lanes without a frame have the last one again.
    const float* own = samples + kFrameStep * std::min(lane, count - 1);
    for (int i = 0; i < kFrameSize; ++i) {
      points[i * kLanes + lane] = tables.window[i] * own[i];
    }
  }
  TransformPass<8, 25, 1>(points, others);
  TransformPass<5, 5, 8>(others, points);
  TransformPass<5, 1, 40>(points, others);
  HWY_ALIGN double powers[kNumBins * kLanes];
  WritePowers(others, powers);
  const size_t num_bands = filters.bands.size();
  for (size_t band = 0; band < num_bands; ++band) {
    const MelFilters::Band& sums = filters.bands[band];
    Vec energy = hn::Zero(d);
    for (int i = 0; i < sums.num_bins; ++i) {
      energy = hn::MulAdd(hn::Set(d, filters.weights[sums.first_weight + i]),
                          hn::Load(d, powers + (sums.first_bin + i) * kLanes),
                          energy);
    }
    HWY_ALIGN double of_lanes[kLanes];
    hn::Store(hn::Log10(d, hn::Max(energy, hn::Set(d, 1e-10))), d, of_lanes);
    for (int lane = 0; lane < count; ++lane) {
      logs[lane * num_bands + band] = static_cast<float>(of_lanes[lane]);
    }
  }
}

void WriteMelFrames(const float* samples, int num_frames,
                    const MelFilters& filters, float* logs) {
  for (int frame = 0; frame < num_frames; frame += kLanes) {
    WriteFrameOfEachLane(samples + size_t{kFrameStep} * frame,
                         std::min(kLanes, num_frames - frame), filters,
                         logs + frame * filters.bands.size());
  }
}

}  // namespace espalier::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier {

HWY_EXPORT(WriteMelFrames);

void WriteMelFrames(const float* samples, int num_frames,
                    const MelFilters& filters, float* logs) {
  HWY_DYNAMIC_DISPATCH(WriteMelFrames)(samples, num_frames, filters, logs);
}

}  // namespace espalier
#endif  // HWY_ONCE
