#include "tests/beam/chi_square.h"

#include <cmath>
#include <numeric>

namespace espalier::testing {
namespace {

// x^a exp(-x) / gamma(a).
double Weight(double a, double x) {
  return std::exp(a * std::log(x) - x - std::lgamma(a));
}

// P(a, x), by its power series: it converges fast for x < a + 1.
double LowerBySeries(double a, double x) {
  double term = 1 / a;
  double sum = term;
  for (int n = 1; n < 10000 && term > sum * 1e-17; ++n) {
    term *= x / (a + n);
    sum += term;
  }
  return sum * Weight(a, x);
}

// Q(a, x), by its continued fraction, evaluated from the far end.
double UpperByFraction(double a, double x) {
  double tail = 0;
  for (int n = 2000; n >= 1; --n) {
    tail = n * (n - a) / (x + 2 * n + 1 - a - tail);
  }
  return Weight(a, x) / (x + 1 - a - tail);
}

}  // namespace

double ChiSquareTail(double x, int degrees) {
  if (x <= 0) return 1;
  const double a = 0.5 * degrees;
  x *= 0.5;
  return x < a + 1 ? 1 - LowerBySeries(a, x) : UpperByFraction(a, x);
}

double PValue(std::span<const int> counts,
              std::span<const double> probabilities) {
  const double total = std::accumulate(counts.begin(), counts.end(), 0.0);
  double chi_square = 0;
  int num_cells = 0;
  double rest_count = 0;
  double rest_expected = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * total;
    if (expected == 0 && counts[i] > 0) return 0;
    if (expected < 5) {
      rest_count += counts[i];
      rest_expected += expected;
      continue;
    }
    chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
    ++num_cells;
  }
  if (rest_expected > 0) {
    const double error = rest_count - rest_expected;
    chi_square += error * error / rest_expected;
    ++num_cells;
  }
  return num_cells < 2 ? 1 : ChiSquareTail(chi_square, num_cells - 1);
}

double NormalPValue(double z) { return std::erfc(std::abs(z) / std::sqrt(2)); }

}  // namespace espalier::testing
