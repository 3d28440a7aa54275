// The keys and values of one layer on the host, in pages: storing a step's
// tokens, making tail copies, and swapping pages to host slots and back. On a
// GPU, CudaCacheEngine moves pages of all layers at once.
#pragma once

#include <cstddef>
#include <span>

#include "base/ids.h"
#include "base/page_copy.h"

namespace espalier {

// The keys and values of one layer.
//   keys, values  [num_pages, page_size, num_kv_heads, head_dim]  f32  host
struct KvLayer {
  std::span<float> keys;
  std::span<float> values;
  int page_size = 1;
  int num_kv_heads = 1;
  int head_dim = 1;

  // Numbers of one slot of keys: all key/value heads.
  size_t slot_size() const { return size_t(num_kv_heads) * head_dim; }
};

// One row of the batch: tokens at positions [first_position,
// first_position + num_tokens) of a sequence whose pages are `pages`.
struct PagedRow {
  int first_token = 0;  // index of its first token in the packed batch
  int num_tokens = 0;
  int first_position = 0;
  std::span<const PageId> pages;
  // In attention: > 0: each token sees the keys of positions [0, num_keys)
  // instead of those up to its own.
  int num_keys = 0;
};

// Writes keys and values of the batch's tokens into their slots.
//   k, v  [num_tokens, num_kv_heads, head_dim], token t at k + t * stride
void StoreKeyValues(std::span<const PagedRow> rows, const float* k,
                    const float* v, int stride, KvLayer& layer);

// Makes the tail copies of a step in one layer: the filled slots only.
void CopyPages(std::span<const PageCopy> copies, KvLayer& layer);

// Swaps whole pages of one layer between `layer` and `host`, whose page ids are
// the host's slots.
void SavePages(std::span<const PageSave> saves, const KvLayer& layer,
               KvLayer& host);
void LoadPages(std::span<const PageLoad> loads, const KvLayer& host,
               KvLayer& layer);

}  // namespace espalier
