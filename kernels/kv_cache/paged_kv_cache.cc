#include "kernels/kv_cache/paged_kv_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/field_error.h"
#include "base/status.h"

namespace espalier {
namespace {

constexpr int kMaxPageSize = 4096;

}  // namespace

absl::StatusOr<PagedKvCache> PagedKvCache::Create(const KvCacheShape& shape,
                                                  int64_t budget_bytes,
                                                  const char* budget) {
  if (shape.page_size < 1 || shape.page_size > kMaxPageSize) {
    return InvalidArgument("page_size must be in [1, ", kMaxPageSize, "], got ",
                           shape.page_size);
  }
  const int64_t num_pages = std::min<int64_t>(
      budget_bytes / shape.page_bytes(), std::numeric_limits<int32_t>::max());
  if (num_pages < 1) {
    return MakeFieldError(absl::StatusCode::kInvalidArgument,
                          OptionName{budget}, " must hold a page of ",
                          MemorySize{shape.page_bytes()}, " (",
                          OptionName{"page_size"}, " ", shape.page_size,
                          "), got ", MemoryValue{budget_bytes});
  }
  const size_t bytes = num_pages * shape.page_bytes();
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return MakeFieldError(absl::StatusCode::kResourceExhausted,
                          OptionName{budget}, ": there is no room for ",
                          MemorySize{static_cast<int64_t>(bytes)},
                          " of keys and values: ", std::strerror(errno));
  }
  return PagedKvCache(shape, static_cast<int>(num_pages),
                      {static_cast<float*>(memory), bytes / sizeof(float)});
}

PagedKvCache::PagedKvCache(PagedKvCache&& other) noexcept
    : shape_(other.shape_),
      num_pages_(other.num_pages_),
      memory_(std::exchange(other.memory_, {})) {}

PagedKvCache::~PagedKvCache() {
  if (!memory_.empty()) munmap(memory_.data(), memory_.size_bytes());
}

KvLayer PagedKvCache::layer(int layer) const {
  CHECK(layer >= 0 && layer < shape_.num_layers) << layer;
  const size_t size = memory_.size() / (2 * shape_.num_layers);
  return {.keys = memory_.subspan(2 * layer * size, size),
          .values = memory_.subspan((2 * layer + 1) * size, size),
          .page_size = shape_.page_size,
          .num_kv_heads = shape_.num_kv_heads,
          .head_dim = shape_.head_dim};
}

}  // namespace espalier
