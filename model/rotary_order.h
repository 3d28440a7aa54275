// How heads lie where a kernel has heads of a multiple of 8 dimensions and
// rotates whole ones: dimensions of q and k are put in another order when
// weights are loaded, which changes no product of the two; the pairs after the
// rotated ones turn by no angle; and dimensions that a model does not have are
// zero, which adds nothing to scores and gives zeros of values.
#pragma once

#include <span>
#include <vector>

#include "model/transformer_config.h"

namespace espalier {

// A dimension that a model does not have.
inline constexpr int kNoHeadRow = -1;

// Where the rows of a head of q or k are to come from: the first halves of
// rotated pairs, of others, and then the second halves, each half filled up
// with kNoHeadRow. As they are where a head is rotated whole, or not at all,
// and as wide as the model's.
//   result  [head_width]
// REQUIRES: head_width >= config.head_dim, and even.
std::vector<int> QkRowOrder(const TransformerConfig& config, int head_width);

// The same of each row of the stacked q, k and v. Of values all dimensions come
// first.
//   result  [(num_heads + 2 * num_kv_heads) * head_width]
std::vector<int> HeadRowOrder(const TransformerConfig& config, int head_width);

// `rows`, of which each has rotary_dim / 2 numbers, with `padding` after them.
//   result  [num_positions, head_width / 2]
std::vector<float> PadRotaryRows(std::span<const float> rows, int num_positions,
                                 int head_width, float padding);

}  // namespace espalier
