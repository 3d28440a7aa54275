// PagedKvCache: the key/value memory of a model on the host, in pages. A page
// holds `page_size` tokens of keys and values for all layers. PagePool assigns
// pages to sequences (pages/page_pool.h); CopyPages, SavePages and LoadPages
// (kernels/kv_cache/kv_layer.h) move them, layer by layer. Host slots are a
// PagedKvCache as well.
//
// Memory is only reserved: address space is allocated at once, and the system
// commits memory when it is first written. A large budget costs nothing until
// it is used. It is overcommitted (MAP_NORESERVE), so Create succeeds on
// budgets larger than the free memory, and a shortage appears later, at a write
// for which the system has no memory. The system's limits and its out-of-memory
// killer handle that; no status reports it.
//
//   keys of layer 0 | values of layer 0 | keys of layer 1 | ...
//   each [num_pages, page_size, num_kv_heads, head_dim] f32
//
// Thread safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "kernels/kv_cache/kv_layer.h"

namespace espalier {

struct KvCacheShape {
  int num_layers = 1;
  int page_size = 16;
  int num_kv_heads = 1;
  int head_dim = 1;

  // Keys and values of one page, all layers.
  int64_t page_bytes() const {
    return int64_t{2} * num_layers * page_size * num_kv_heads * head_dim *
           int64_t{sizeof(float)};
  }
};

class PagedKvCache {
 public:
  // Allocates as many pages as fit in `budget_bytes`, which error messages call
  // `budget`.
  // Errors: kInvalidArgument if page_size is not in [1, 4096] or the budget
  // holds no page; kResourceExhausted if the system refuses the address space.
  static absl::StatusOr<PagedKvCache> Create(
      const KvCacheShape& shape, int64_t budget_bytes,
      const char* budget = "kv_cache_bytes");

  PagedKvCache(PagedKvCache&& other) noexcept;
  PagedKvCache& operator=(PagedKvCache&&) = delete;
  ~PagedKvCache();

  int num_pages() const { return num_pages_; }
  const KvCacheShape& shape() const { return shape_; }

  // A view of one layer.
  // REQUIRES: 0 <= layer < shape().num_layers.
  KvLayer layer(int layer) const;

 private:
  PagedKvCache(const KvCacheShape& shape, int num_pages,
               std::span<float> memory)
      : shape_(shape), num_pages_(num_pages), memory_(memory) {}

  KvCacheShape shape_;
  int num_pages_;
  std::span<float> memory_;
};

}  // namespace espalier
