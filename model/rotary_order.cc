#include "model/rotary_order.h"

#include <numeric>

namespace espalier {

std::vector<int> RotaryRowOrder(const TransformerConfig& config) {
  std::vector<int> order(config.q_size() + 2 * config.kv_size());
  std::iota(order.begin(), order.end(), 0);
  const int rotary_dim = config.rope.RotaryDim(config.head_dim);
  const int num_pairs = rotary_dim / 2;
  const int num_others = (config.head_dim - rotary_dim) / 2;
  const int num_rotated = config.q_size() + config.kv_size();
  for (int head = 0; head < num_rotated; head += config.head_dim) {
    int* const first = &order[head];
    int* const second = first + config.head_dim / 2;
    for (int i = 0; i < num_pairs; ++i) {
      first[i] = head + i;
      second[i] = head + num_pairs + i;
    }
    for (int i = 0; i < num_others; ++i) {
      first[num_pairs + i] = head + rotary_dim + i;
      second[num_pairs + i] = head + rotary_dim + num_others + i;
    }
  }
  return order;
}

std::vector<float> PadRotaryRows(std::span<const float> rows, int rotary_dim,
                                 int head_dim, float padding) {
  std::vector<float> padded;
  const int num_pairs = rotary_dim / 2;
  for (size_t at = 0; at < rows.size(); at += num_pairs) {
    padded.insert(padded.end(), rows.begin() + at,
                  rows.begin() + at + num_pairs);
    padded.insert(padded.end(), head_dim / 2 - num_pairs, padding);
  }
  return padded;
}

}  // namespace espalier
