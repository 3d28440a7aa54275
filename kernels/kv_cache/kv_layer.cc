#include "kernels/kv_cache/kv_layer.h"

#include <algorithm>
#include <cstdint>

#include "base/check.h"

namespace espalier {
namespace {

float* Slot(std::span<float> cache, const KvLayer& layer, PageId page,
            int slot) {
  const size_t index = size_t(page.value) * layer.page_size + slot;
  DCHECK((index + 1) * layer.slot_size() <= cache.size()) << "page " << page;
  return cache.data() + index * layer.slot_size();
}

}  // namespace

void StoreKeyValues(std::span<const PagedRow> rows, const float* k,
                    const float* v, int stride, KvLayer& layer) {
  for (const PagedRow& row : rows) {
    for (int i = 0; i < row.num_tokens; ++i) {
      const int position = row.first_position + i;
      const PageId page = row.pages[position / layer.page_size];
      const int slot = position % layer.page_size;
      const int64_t offset = int64_t{row.first_token + i} * stride;
      std::copy_n(k + offset, layer.slot_size(),
                  Slot(layer.keys, layer, page, slot));
      std::copy_n(v + offset, layer.slot_size(),
                  Slot(layer.values, layer, page, slot));
    }
  }
}

void CopyPages(std::span<const PageCopy> copies, KvLayer& layer) {
  for (const PageCopy& copy : copies) {
    const size_t count = copy.num_tokens * layer.slot_size();
    for (const std::span<float> cache : {layer.keys, layer.values}) {
      std::copy_n(Slot(cache, layer, copy.from, 0), count,
                  Slot(cache, layer, copy.to, 0));
    }
  }
}

}  // namespace espalier
