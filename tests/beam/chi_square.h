// How likely counts are if they were drawn from given probabilities: Pearson's
// chi-square test.
#pragma once

#include <span>

namespace espalier::testing {

// The probability of a chi-square variable with `degrees` degrees of freedom to
// be at least `x`: the upper regularised incomplete gamma function.
double ChiSquareTail(double x, int degrees);

// The p-value of `counts`, of which `probabilities` were expected; they sum to
// 1. Cells that expect fewer than 5 are one; an impossible one that was hit
// gives 0.
double PValue(std::span<const int> counts,
              std::span<const double> probabilities);

// The two-sided p-value of a standard normal variable.
double NormalPValue(double z);

}  // namespace espalier::testing
