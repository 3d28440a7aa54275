// Attention over paged keys and values: many-query, causal, grouped-query. A
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

// out = softmax(q k^T / sqrt(head_dim)) v, a token at position p attending to
// positions 0..p of its own sequence.
//   q    [num_tokens, num_heads, head_dim], token t at q + t * q_stride
//   out  [num_tokens, num_heads, head_dim]  dense
// NaN and infinities, of a head of a token:
//   - a score (q k^T) that is NaN or +inf makes all of its output NaN, and so
//     do scores that are all -inf; among others a score of -inf weighs nothing;
//   - a NaN value makes its dimension NaN whatever its weight, an infinite one
//     makes it infinite, or NaN where the weight is 0 (or rounds to it).
// A score that overflows float32 is infinite.
// REQUIRES: num_heads % num_kv_heads == 0.
void Attention(std::span<const PagedRow> rows, const float* q, int q_stride,
               int num_heads, const KvLayer& layer, std::span<float> out,
               ThreadPool& pool);

namespace reference {

// The twin: unpaged, double, one query; NaN and infinities as above.
//   q       [head_dim]
//   keys    [num_positions, head_dim], values the same
//   result  [head_dim]
std::vector<double> Attention(std::span<const float> q,
                              std::span<const float> keys,
                              std::span<const float> values);

}  // namespace reference
}  // namespace espalier
