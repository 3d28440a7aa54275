// The median of a benchmark's rounds: what other programs on the machine
// disturb least.
#pragma once

#include <algorithm>
#include <vector>

namespace espalier {

// REQUIRES: not empty.
template <typename T>
T Median(std::vector<T> values) {
  const auto middle = values.begin() + values.size() / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace espalier
