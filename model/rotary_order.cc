#include "model/rotary_order.h"

#include <numeric>

namespace espalier {

std::vector<int> QkRowOrder(const TransformerConfig& config, int head_width) {
  std::vector<int> order(head_width, kNoHeadRow);
  if (config.positions != PositionKind::kRotary) {
    std::iota(order.begin(), order.begin() + config.head_dim, 0);
    return order;
  }
  const int rotary_dim = config.rope.RotaryDim(config.head_dim);
  const int num_pairs = rotary_dim / 2;
  const int num_others = (config.head_dim - rotary_dim) / 2;
  int* const first = order.data();
  int* const second = first + head_width / 2;
  std::iota(first, first + num_pairs, 0);
  std::iota(second, second + num_pairs, num_pairs);
  std::iota(first + num_pairs, first + num_pairs + num_others, rotary_dim);
  std::iota(second + num_pairs, second + num_pairs + num_others,
            rotary_dim + num_others);
  return order;
}

std::vector<int> HeadRowOrder(const TransformerConfig& config, int head_width) {
  const std::vector<int> of_head = QkRowOrder(config, head_width);
  const int num_rotated = config.num_heads + config.num_kv_heads;
  const int num_all = num_rotated + config.num_kv_heads;
  std::vector<int> order;
  for (int head = 0; head < num_all; ++head) {
    for (int i = 0; i < head_width; ++i) {
      const int as_it_is = i < config.head_dim ? i : kNoHeadRow;
      const int dim = head < num_rotated ? of_head[i] : as_it_is;
      order.push_back(dim == kNoHeadRow ? kNoHeadRow
                                        : head * config.head_dim + dim);
    }
  }
  return order;
}

std::vector<float> PadRotaryRows(std::span<const float> rows, int num_positions,
                                 int head_width, float padding) {
  std::vector<float> padded;
  const size_t num_pairs = rows.size() / num_positions;
  for (int position = 0; position < num_positions; ++position) {
    const auto row = rows.subspan(position * num_pairs, num_pairs);
    padded.insert(padded.end(), row.begin(), row.end());
    padded.insert(padded.end(), head_width / 2 - num_pairs, padding);
  }
  return padded;
}

}  // namespace espalier
