// Attention over paged keys and values: many-query, grouped-query, over all of
// the sequence so far or a sliding window of it; or, of encoders and across to
// them, over given keys whatever the query's position (PagedRow::num_keys). A
// row may bring one token (decode) or many (a chunk of a prompt); there is one
// function for both.
//
// Every query is computed alone, over positions in ascending order in a way
// that does not see page boundaries: the same bits at any page size, chunking
// or batch.
#pragma once

#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kv_cache/kv_layer.h"

namespace espalier {

// How scores are made of q k^T, and which keys a token sees.
struct AttentionOptions {
  float scale = 0;  // scores are scale * q k^T; 0: 1 / sqrt(head_dim)
  // If > 0, a score s becomes soft_cap * tanh(s / soft_cap).
  float soft_cap = 0;
  // If > 0, a token sees the last `window` positions, its own among them.
  int window = 0;
  // Added to scores, by the key's position less the query's: of head h and
  // distance d it is biases[h * (2 * max_distance + 1) + max_distance + d], d
  // taken to [-max_distance, max_distance]. Null: nothing is added.
  //   biases  [num_heads, 2 * max_distance + 1]
  const float* biases = nullptr;
  int max_distance = 0;

  // The first position that a token at `position` sees.
  int FirstSeen(int position) const {
    return window > 0 && position >= window ? position - window + 1 : 0;
  }
};

// out = softmax(q k^T / sqrt(head_dim)) v, a token at position p attending to
// positions 0..p of its own sequence, as `options` change it.
//   q    [num_tokens, num_heads, head_dim], token t at q + t * q_stride
//   out  [num_tokens, num_heads, head_dim]  dense
// NaN and infinities, of a head of a token:
//   - a score (q k^T) that is NaN or +inf makes all of its output NaN, and so
//     do scores that are all -inf; among others a score of -inf weighs nothing;
//   - a NaN value makes its dimension NaN whatever its weight, an infinite one
//     makes it infinite, or NaN where the weight is 0 (or rounds to it).
// A score that overflows float32 is infinite. With a soft cap an infinite score
// is the cap, or its opposite. What a window hides is not read.
// REQUIRES: num_heads % num_kv_heads == 0.
void Attention(std::span<const PagedRow> rows, const float* q, int q_stride,
               int num_heads, const KvLayer& layer, std::span<float> out,
               ThreadPool& pool, const AttentionOptions& options = {});

namespace reference {

// The twin: unpaged, double, one query of head 0, that of the last position or
// of `position`, which sees all keys; NaN and infinities as above.
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
