// P-values: the probability of a result at least as far from the expectation as
// the observed one, if the expectation is right. For counts, by Pearson's
// chi-square test, and for sums.
#pragma once

#include <cmath>
#include <cstdint>
#include <ranges>
#include <span>

namespace espalier::testing {

// Below this a check fails. With a hundred checks, code that is right fails
// once in 10,000 seeds.
inline constexpr double kLeastPValue = 1e-6;

// Q(a, x), the regularised upper incomplete gamma function: by its series for
// small x, and by Lentz' continued fraction beyond.
inline double UpperGamma(double a, double x) {
  if (x <= 0) return 1;
  const double front = std::exp(a * std::log(x) - x - std::lgamma(a));
  if (x < a + 1) {
    double term = 1 / a, sum = term;
    for (double n = a + 1; term > 1e-17 * sum; ++n) {
      term *= x / n;
      sum += term;
    }
    return 1 - front * sum;
  }
  double b = x + 1 - a, c = 1e300, d = 1 / b, h = d;
  for (int i = 1; i < 100000; ++i) {
    const double an = -i * (i - a);
    b += 2;
    d = 1 / (an * d + b);
    c = b + an / c;
    h *= d * c;
    if (std::abs(d * c - 1) < 1e-15) break;
  }
  return front * h;
}

// Returns the probability that a chi-square variable of `degrees` degrees of
// freedom exceeds `statistic`.
inline double ChiSquareTail(double statistic, int degrees) {
  return UpperGamma(0.5 * degrees, 0.5 * statistic);
}

// That a standard normal variable is as far from 0 as `z`, on either side.
inline double NormalPValue(double z) {
  return std::erfc(std::abs(z) / std::sqrt(2));
}

// Returns the p-value of counts that should be multinomial with these
// probabilities, which sum to 1. Cells with an expected count below 5 are
// merged. If an impossible event happened, the p-value is 0.
template <std::ranges::random_access_range Counts>
double ChiSquarePValue(std::span<const double> probabilities,
                       const Counts& counts) {
  int64_t total = 0;
  for (const auto count : counts) total += count;
  double statistic = 0, rest_expected = 0;
  int64_t rest = 0;
  int cells = 0;
  const auto add = [&](double expected, int64_t count) {
    statistic += (count - expected) * (count - expected) / expected;
    ++cells;
  };
  for (size_t i = 0; i < std::size(counts); ++i) {
    if (probabilities[i] == 0 && counts[i] > 0) return 0;
    const double expected = probabilities[i] * total;
    if (expected >= 5) {
      add(expected, counts[i]);
    } else {
      rest_expected += expected;
      rest += counts[i];
    }
  }
  // A handful of rare tokens has no chi-square distribution; that there should
  // be less than 1 and are many still shows in the cells they are missing from.
  if (rest_expected >= 1) add(rest_expected, rest);
  return cells < 2 ? 1 : ChiSquareTail(statistic, cells - 1);
}

}  // namespace espalier::testing
