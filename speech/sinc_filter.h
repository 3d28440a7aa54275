// SincFilter: the low-pass filter of Resampler as a function of time, in
// double: a sinc under a Kaiser window.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

namespace espalier {

class SincFilter {
 public:
  // The filter from `from_hz` to `to_hz` passes frequencies that both can have.
  SincFilter(int from_hz, int to_hz)
      : scale_(std::min(1.0, static_cast<double>(to_hz) / from_hz)) {}

  // Input samples to each side where the filter is not 0.
  double reach() const { return kZeroCrossings / scale_; }

  // The weight of an input sample `x` samples away.
  double operator()(double x) const {
    const double t = x * scale_;
    if (std::abs(t) >= kZeroCrossings) return 0;
    const double root =
        std::sqrt(1 - t * t / (kZeroCrossings * kZeroCrossings));
    const double window = std::cyl_bessel_i(0, kBeta * root) / kPeak;
    const double phase = std::numbers::pi * kCutoff * t;
    const double sinc = phase == 0 ? 1 : std::sin(phase) / phase;
    return scale_ * kCutoff * sinc * window;
  }

 private:
  // The stop band begins at the Nyquist frequency: by Kaiser's formula 128
  // zero crossings at 100 dB have a transition of a tenth of it, around 0.95.
  static constexpr double kZeroCrossings = 64;
  static constexpr double kCutoff = 0.95;
  static constexpr double kBeta = 10;
  static inline const double kPeak = std::cyl_bessel_i(0, kBeta);

  double scale_;
};

}  // namespace espalier
