// AttendTile: the SIMD core of Attention. It attends with some queries, which
// share a key/value head and a sequence, to the positions that each sees.
//
// Positions are taken in blocks from the first one seen, with a running maximum
// and sum for each query (online softmax). A block of keys and values serves
// all queries of the tile. The operations of a query and their order depend on
// its positions only, not on the other queries: the same bits in any tile.
//
//            keys of a block ──>
//   queries  s s s s  s s s s     4 x 4 scores at a time: sums over dimensions
//      │     s s s s  s s s s     in vectors, whose lanes are then added for
//      v     s s s s  s s s s     all of them together
//            s s s s  s s s s
//
// A small table of offsets gives the places of a block's keys and values. No
// other code depends on pages.
// Source: Milakov and Gimelshein 2018, https://arxiv.org/abs/1805.02867.
#pragma once

#include <cstddef>
#include <span>

#include "base/ids.h"

namespace espalier {

// Largest number of queries of a tile.
inline constexpr int kMaxTileQueries = 128;

struct TileQuery {
  const float* q = nullptr;  // [head_dim]
  float* out = nullptr;      // [head_dim]
  // As in AttentionOptions, for its head; null: none.
  const float* biases = nullptr;
  int position = 0;
  // It sees positions [first_position, num_positions); not empty.
  int num_positions = 0;
};

struct AttentionTile {
  std::span<const TileQuery> queries = {};  // at most kMaxTileQueries
  int head_dim = 0;
  int first_position = 0;
  float scale = 0;     // as in AttentionOptions, but never 0
  float soft_cap = 0;  // as in AttentionOptions
  int max_distance = 0;
  std::span<const PageId> pages = {};
  int page_size = 0;
  const float* keys = nullptr;  // this head's keys in slot 0 of page 0
  const float* values = nullptr;
  size_t slot_stride = 0;  // floats from one slot to the next
};

void AttendTile(const AttentionTile& tile);

}  // namespace espalier
