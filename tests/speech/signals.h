// Audio that tests make, and how it is compared.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>
#include <vector>

namespace espalier::testing {

inline std::vector<float> Sine(double hz, int rate, int size,
                               double amplitude) {
  std::vector<float> samples;
  for (int i = 0; i < size; ++i) {
    samples.push_back(static_cast<float>(
        amplitude * std::sin(2 * std::numbers::pi * hz * i / rate)));
  }
  return samples;
}

// White noise: it has all frequencies.
inline std::vector<float> Noise(int size, float amplitude) {
  std::mt19937 random(size);
  std::uniform_real_distribution<float> values(-amplitude, amplitude);
  std::vector<float> noise(size);
  for (float& value : noise) value = values(random);
  return noise;
}

template <typename T>
double LargestDifference(const std::vector<float>& a, const std::vector<T>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    largest = std::max(largest, std::abs(double{a[i]} - double{b[i]}));
  }
  return largest;
}

}  // namespace espalier::testing
