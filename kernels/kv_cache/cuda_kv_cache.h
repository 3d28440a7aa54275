// CudaKvCache: the layout of keys and values in device memory. A view: the code
// that allocates the memory owns it (unlike PagedKvCache on the host), PagePool
// assigns pages to sequences (pages/page_pool.h), and executors copy and swap
// pages through a CudaCacheEngine.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace espalier {

// The key/value memory of all layers on the device.
//   [num_layers][num_pages][2: keys, values][num_kv_heads][page_size][head_dim]
// so that the keys of one head of one page are contiguous.
struct CudaKvCache {
  void* data = nullptr;
  DType dtype = DType::kBFloat16;  // kBFloat16, kFloat16 or kFloat32
  int num_layers = 1;
  int num_pages = 0;
  int page_size = 16;  // tokens
  int num_kv_heads = 1;
  int head_dim = 64;

  // Distances in elements.
  constexpr int64_t head_stride() const {
    return int64_t{page_size} * head_dim;
  }
  constexpr int64_t values_offset() const {
    return num_kv_heads * head_stride();
  }
  constexpr int64_t page_stride() const { return 2 * values_offset(); }
  constexpr int64_t layer_stride() const { return num_pages * page_stride(); }
};

// The token at each place of each page, stored beside its keys and values.
//   data  [num_pages, page_size]  device; null if tokens are not kept
struct CudaPageTokens {
  int* data = nullptr;
  int page_size = 1;
};

}  // namespace espalier
