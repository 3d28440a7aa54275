// The SIMD core of Resampler.
#pragma once

namespace espalier {

// Returns the sum of samples[i] * ((1 - fraction) * row[i] + fraction *
// next[i]).
//   samples, row, next  [size]; next is not read if fraction is 0
float FilteredRow(const float* samples, const float* row, const float* next,
                  float fraction, int size);

}  // namespace espalier
