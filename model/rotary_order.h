// Head layout for kernels that need head widths in multiples of 8 and rotate
// whole heads. The loader permutes the rows of q and k alike, so their dot
// products do not change. Pairs that the model does not rotate get angle 0, and
// padding dimensions are zero, so they add nothing to scores or values.
#pragma once

#include <span>
#include <vector>

#include "model/transformer_config.h"

namespace espalier {

// A padding dimension.
inline constexpr int kNoHeadRow = -1;

// Returns the source row of each row of a q or k head: the first halves of the
// rotated pairs and of the other dimensions, then the second halves, each half
// padded with kNoHeadRow. The order is the identity if the whole head or none
// of it is rotated and head_width is head_dim.
//   result  [head_width]
// REQUIRES: head_width >= config.head_dim, and even.
std::vector<int> QkRowOrder(const TransformerConfig& config, int head_width);

// Returns the source row of each row of the stacked q, k and v: QkRowOrder for
// heads of q and k; heads of v keep their order, with the padding at the end.
//   result  [(num_heads + 2 * num_kv_heads) * head_width]
std::vector<int> HeadRowOrder(const TransformerConfig& config, int head_width);

// Pads each row of rotary_dim / 2 cosines or sines with `padding`.
//   rows    [num_positions, rotary_dim / 2]
//   result  [num_positions, head_width / 2]
std::vector<float> PadRotaryRows(std::span<const float> rows, int num_positions,
                                 int head_width, float padding);

}  // namespace espalier
