// Attention over paged keys and values: multi-head and grouped-query, over the
// whole sequence so far or a sliding window of it. Encoders and cross-attention
// attend to given keys whatever the query's position (PagedRow::num_keys). One
// function serves rows of one token (decode) and of many (a chunk of a prompt).
//
// The result of a query depends on its positions only, taken in ascending
// order, not on the other queries of the call: the same bits at any page size,
// chunking or batch.
#pragma once

#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kv_cache/kv_layer.h"

namespace espalier {

// The computation of scores from q k^T, and the keys that a token sees.
struct AttentionOptions {
  float scale = 0;  // scores are scale * q k^T; 0: 1 / sqrt(head_dim)
  // If > 0, a score s becomes soft_cap * tanh(s / soft_cap).
  float soft_cap = 0;
  // If > 0, a token sees the last `window` positions, its own among them.
  int window = 0;
  // Bias of scores by the key's position minus the query's: for head h and
  // distance d it is biases[h * (2 * max_distance + 1) + max_distance + d],
  // with d clamped to [-max_distance, max_distance]. Null: no bias.
  //   biases  [num_heads, 2 * max_distance + 1]
  const float* biases = nullptr;
  int max_distance = 0;

  // Returns the first position that a token at `position` sees.
  int FirstSeen(int position) const {
    return window > 0 && position >= window ? position - window + 1 : 0;
  }
};

// out = softmax(q k^T / sqrt(head_dim)) v, with the changes that `options`
// make. A token at position p attends to positions 0..p of its own sequence.
//   q    [num_tokens, num_heads, head_dim], token t at q + t * q_stride
//   out  [num_tokens, num_heads, head_dim]  dense
// NaN and infinities, for a head of a token:
//   - a score (q k^T) that is NaN or +inf makes all of its output NaN, and so
//     do scores that are all -inf; otherwise a score of -inf has weight 0;
//   - a NaN value makes its dimension NaN whatever its weight, an infinite one
//     makes it infinite, or NaN if the weight is 0 (or rounds to it).
// A score that overflows float32 is infinite. With a soft cap an infinite score
// becomes the cap or its negative. Positions outside the window are not read.
// REQUIRES: num_heads % num_kv_heads == 0.
void Attention(std::span<const PagedRow> rows, const float* q, int q_stride,
               int num_heads, const KvLayer& layer, std::span<float> out,
               ThreadPool& pool, const AttentionOptions& options = {});

namespace reference {

// Reference implementation: unpaged, double, one query of head 0 at the last
// position or at `position`, which sees all keys; NaN and infinities as above.
//   q       [head_dim]
//   keys    [num_positions, head_dim], values the same
//   result  [head_dim]
std::vector<double> Attention(std::span<const float> q,
                              std::span<const float> keys,
                              std::span<const float> values,
                              const AttentionOptions& options = {},
                              int position = -1);

}  // namespace reference
}  // namespace espalier
