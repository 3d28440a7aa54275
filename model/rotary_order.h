// How a kernel that rotates whole heads rotates parts of them: dimensions of q
// and k are put in another order when weights are loaded, which changes no
// product of the two, and the pairs behind the rotated ones turn by no angle.
#pragma once

#include <span>
#include <vector>

#include "model/transformer_config.h"

namespace espalier {

// Where each row of the stacked q, k and v is to come from: head by head of q
// and k the first halves of rotated pairs, of others, and then the second
// halves. Ascending numbers if heads are rotated whole.
//   result  [q_size + 2 * kv_size]
std::vector<int> RotaryRowOrder(const TransformerConfig& config);

// `rows`, of which each has rotary_dim / 2 numbers, with `padding` behind them.
//   result  [num_positions, head_dim / 2]
std::vector<float> PadRotaryRows(std::span<const float> rows, int rotary_dim,
                                 int head_dim, float padding);

}  // namespace espalier
