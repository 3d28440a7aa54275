#include "constrain/token_list_set.h"

#include <string_view>
#include <utility>

#include "base/hash.h"

namespace espalier {
namespace {

template <typename T>
std::string_view BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(T)};
}

}  // namespace

const TokenList* TokenListSet::Find(uint64_t hash, const TokenMask& mask,
                                    int num_last) const {
  const auto [begin, end] = entries_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const Entry& entry = *it->second;
    if (entry.list.num_last != num_last || entry.words != mask.words()) {
      continue;
    }
    if (mask.has_words() || entry.list.tokens == mask.few()) {
      return &entry.list;
    }
  }
  return nullptr;
}

const TokenList* TokenListSet::Keep(TokenMask mask, int num_last) {
  const uint64_t hash =
      HashOf(mask.has_words() ? BytesOf(mask.words()) : BytesOf(mask.few()));
  {
    const std::lock_guard lock(mutex_);
    if (const TokenList* const list = Find(hash, mask, num_last)) return list;
  }
  // A long list is made without the lock.
  auto entry = std::make_unique<Entry>();
  entry->list = {.tokens = mask.ToList(), .num_last = num_last};
  const std::lock_guard lock(mutex_);
  if (const TokenList* const list = Find(hash, mask, num_last)) return list;
  entry->words = mask.words();
  const auto num_bytes = static_cast<int64_t>(
      entry->list.tokens.size() * sizeof(TokenId) +
      entry->words.size() * sizeof(uint64_t) + sizeof(Entry) + 48);
  const auto kept = entries_.emplace(hash, std::move(entry));  // may throw
  num_bytes_ += num_bytes;
  return &kept->second->list;
}

int64_t TokenListSet::num_bytes() const {
  const std::lock_guard lock(mutex_);
  return num_bytes_;
}

}  // namespace espalier
