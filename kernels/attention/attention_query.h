// AttendOne: the SIMD core of Attention. It attends with the queries of one
// token that share a key/value head, to the positions that the token sees.
//
// Positions are taken in blocks from the first one seen, with a running maximum
// and sum (online softmax), so the order of operations depends on positions
// only. Inside a block, a small table of offsets gives the places of keys and
// values. No other code depends on pages.
// Source: Milakov and Gimelshein 2018, https://arxiv.org/abs/1805.02867.
#pragma once

#include <cstddef>
#include <span>

#include "base/ids.h"

namespace espalier {

struct AttentionQuery {
  const float* q = nullptr;  // [num_queries, head_dim]
  float* out = nullptr;      // [num_queries, head_dim]
  int num_queries = 0;       // query heads that share the key/value head
  int head_dim = 0;
  // Range of positions to attend to; not empty.
  int first_position = 0;
  int num_positions = 0;
  float scale = 0;     // as in AttentionOptions, but never 0
  float soft_cap = 0;  // as in AttentionOptions
  // As in AttentionOptions, for the first head; null: none.
  const float* biases = nullptr;
  int max_distance = 0;
  int position = 0;  // the query's position
  std::span<const PageId> pages;
  int page_size = 0;
  const float* keys = nullptr;  // this head's keys in slot 0 of page 0
  const float* values = nullptr;
  size_t slot_stride = 0;  // floats from one slot to the next
};

void AttendOne(const AttentionQuery& query);

}  // namespace espalier
