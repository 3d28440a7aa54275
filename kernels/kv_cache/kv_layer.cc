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

void CopyWholePage(const KvLayer& from, int from_page, const KvLayer& to,
                   int to_page) {
  const size_t count = from.page_size * from.slot_size();
  std::copy_n(Slot(from.keys, from, PageId{from_page}, 0), count,
              Slot(to.keys, to, PageId{to_page}, 0));
  std::copy_n(Slot(from.values, from, PageId{from_page}, 0), count,
              Slot(to.values, to, PageId{to_page}, 0));
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

void SavePages(std::span<const PageSave> saves, const KvLayer& layer,
               KvLayer& host) {
  for (const PageSave& save : saves) {
    CopyWholePage(layer, save.page.value, host, save.slot.value);
  }
}

void LoadPages(std::span<const PageLoad> loads, const KvLayer& host,
               KvLayer& layer) {
  for (const PageLoad& load : loads) {
    CopyWholePage(host, load.slot.value, layer, load.page.value);
  }
}

}  // namespace espalier
