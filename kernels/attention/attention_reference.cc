#include <algorithm>
#include <cmath>

#include "kernels/attention/attention.h"

namespace espalier::reference {

std::vector<double> Attention(std::span<const float> q,
                              std::span<const float> keys,
                              std::span<const float> values,
                              const AttentionOptions& options, int position) {
  const size_t head_dim = q.size();
  if (options.window > 0) {
    const size_t num_seen =
        std::min(keys.size(), size_t(options.window) * head_dim);
    keys = keys.last(num_seen);
    values = values.last(num_seen);
  }
  const double scale = options.scale > 0
                           ? double{options.scale}
                           : 1 / std::sqrt(static_cast<double>(head_dim));
  const size_t num_positions = keys.size() / head_dim;
  std::vector<double> scores(num_positions, 0.0);
  for (size_t p = 0; p < num_positions; ++p) {
    for (size_t i = 0; i < head_dim; ++i) {
      scores[p] += double{q[i]} * double{keys[p * head_dim + i]};
    }
    scores[p] *= scale;
    if (options.biases != nullptr) {
      const int most = options.max_distance;
      const int query =
          position < 0 ? static_cast<int>(num_positions) - 1 : position;
      scores[p] += options.biases[most + std::clamp(static_cast<int>(p) - query,
                                                    -most, most)];
    }
    if (options.soft_cap > 0) {
      scores[p] = options.soft_cap * std::tanh(scores[p] / options.soft_cap);
    }
  }
  // A NaN passes through the exponential, whether or not it is the maximum.
  const double maximum = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - maximum);
  std::vector<double> result(head_dim, 0.0);
  for (size_t p = 0; p < num_positions; ++p) {
    for (size_t i = 0; i < head_dim; ++i) {
      result[i] += scores[p] / sum * double{values[p * head_dim + i]};
    }
  }
  return result;
}

}  // namespace espalier::reference
