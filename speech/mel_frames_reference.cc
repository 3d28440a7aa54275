#include "speech/mel_frames_reference.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "speech/mel_frames.h"

namespace espalier {
namespace {

// The angle of a period's part, numerator / kFrameSize.
double Angle(int numerator) {
  return 2 * std::numbers::pi * (numerator % kFrameSize) / kFrameSize;
}

double Power(const std::vector<double>& windowed, int bin) {
  double real = 0;
  double imaginary = 0;
  for (int i = 0; i < kFrameSize; ++i) {
    real += windowed[i] * std::cos(Angle(i * bin));
    imaginary -= windowed[i] * std::sin(Angle(i * bin));
  }
  return real * real + imaginary * imaginary;
}

}  // namespace

void WriteMelFramesReference(const float* samples, int num_frames,
                             const MelFilters& filters, float* logs) {
  for (int frame = 0; frame < num_frames; ++frame) {
    std::vector<double> windowed;
    for (int i = 0; i < kFrameSize; ++i) {
      const double hann = 0.5 - 0.5 * std::cos(Angle(i));
      windowed.push_back(hann * samples[frame * kFrameStep + i]);
    }
    std::vector<double> powers;
    for (int bin = 0; bin < kNumBins; ++bin) {
      powers.push_back(Power(windowed, bin));
    }
    for (const MelFilters::Band& band : filters.bands) {
      double energy = 0;
      for (int i = 0; i < band.num_bins; ++i) {
        energy +=
            filters.weights[band.first_weight + i] * powers[band.first_bin + i];
      }
      *logs++ = static_cast<float>(std::log10(std::max(energy, 1e-10)));
    }
  }
}

}  // namespace espalier
