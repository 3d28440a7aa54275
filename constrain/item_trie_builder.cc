#include "constrain/item_trie_builder.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"

namespace espalier {
namespace {

uint64_t KeyOf(uint64_t key) { return key; }

// The tokens of an item from some place on, as many as a key has.
struct KeyedItem {
  uint64_t key;
  uint32_t item;
};
uint64_t KeyOf(const KeyedItem& item) { return item.key; }

// Sorts by the lowest `num_bits` bits of the keys, stably, from the lowest
// digit on.
template <typename T>
void RadixSort(std::span<T> values, int num_bits, std::vector<T>* spare) {
  constexpr int kDigitBits = 11;
  constexpr uint64_t kMask = (1 << kDigitBits) - 1;
  spare->resize(std::max(spare->size(), values.size()));
  std::span<T> from = values;
  std::span<T> to = std::span(*spare).first(values.size());
  for (int shift = 0; shift < num_bits; shift += kDigitBits) {
    std::array<uint32_t, kMask + 1> places = {};
    for (const T& value : from) ++places[KeyOf(value) >> shift & kMask];
    uint32_t next = 0;
    for (uint32_t& place : places) next += std::exchange(place, next);
    for (const T& value : from) {
      to[places[KeyOf(value) >> shift & kMask]++] = value;
    }
    std::swap(from, to);
  }
  if (from.data() != values.data()) std::ranges::copy(from, values.begin());
}

// Packs tokens, each plus 1, into keys, with 0 after the end of a list: keys
// are ordered as the lists are.
class KeyFormat {
 public:
  explicit KeyFormat(int64_t max_token)
      : token_bits_(std::max(1, static_cast<int>(std::bit_width(
                                    static_cast<uint64_t>(max_token + 1))))),
        num_tokens_(64 / token_bits_) {}

  int num_tokens() const { return num_tokens_; }
  int num_bits() const { return num_tokens_ * token_bits_; }
  // Keys of lists no longer than this have fewer bits.
  KeyFormat ForLength(int32_t length) const {
    KeyFormat format = *this;
    format.num_tokens_ = std::min(num_tokens_, length);
    return format;
  }

  uint64_t Pack(std::span<const TokenId> list, size_t begin) const {
    uint64_t key = 0;
    for (int i = 0; i < num_tokens_; ++i) {
      const bool has_token = begin + i < list.size();
      key = key << token_bits_ |
            (has_token ? static_cast<uint64_t>(list[begin + i]) + 1 : 0);
    }
    return key;
  }
  TokenId TokenAt(uint64_t key, int i) const {
    const int shift = (num_tokens_ - 1 - i) * token_bits_;
    const uint64_t mask = (uint64_t{1} << token_bits_) - 1;
    return static_cast<TokenId>((key >> shift & mask) - 1);
  }
  int LengthOf(uint64_t key) const {
    return key == 0 ? 0 : num_tokens_ - std::countr_zero(key) / token_bits_;
  }
  // Returns the number of tokens that two different keys begin with.
  int NumCommon(uint64_t a, uint64_t b) const {
    return (std::countl_zero(a ^ b) - (64 - num_bits())) / token_bits_;
  }

 private:
  int token_bits_;
  int num_tokens_;
};

// Items whose tokens all fit into a key.
class PackedItems {
 public:
  PackedItems(const TokenLists& items, const KeyFormat& format)
      : format_(format) {
    keys_.reserve(items.size());
    for (int64_t i = 0; i < items.size(); ++i) {
      keys_.push_back(format.Pack(items[i], 0));
    }
    std::vector<uint64_t> spare;
    RadixSort<uint64_t>(keys_, format.num_bits(), &spare);
  }

  // Calls visit(num_common, length, token_at) for each different item in
  // ascending order: the tokens that it begins with as the one before, and
  // token_at(i).
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    uint64_t last = 0;
    for (const uint64_t key : keys_) {
      if (key == last) continue;
      visit(format_.NumCommon(key, last), format_.LengthOf(key),
            [&](int i) { return format_.TokenAt(key, i); });
      last = key;
    }
  }

 private:
  const KeyFormat format_;
  std::vector<uint64_t> keys_;
};

// Items of any lengths: sorted by their first tokens, and where these are
// equal, by the next ones.
class LongItems {
 public:
  LongItems(const TokenLists& items, const KeyFormat& format) : items_(items) {
    std::vector<KeyedItem> keyed(items.size());
    for (size_t i = 0; i < keyed.size(); ++i) {
      keyed[i].item = static_cast<uint32_t>(i);
    }
    Sort(keyed, format);
    sorted_.reserve(keyed.size());
    for (const KeyedItem& item : keyed) sorted_.push_back(item.item);
  }

  template <typename Visit>
  void ForEach(const Visit& visit) const {
    std::span<const TokenId> last;
    for (const uint32_t item : sorted_) {
      const std::span<const TokenId> list = items_[item];
      const auto common = std::ranges::mismatch(last, list).in2 - list.begin();
      if (common == std::ssize(list)) continue;  // as the last, or empty
      visit(static_cast<int>(common), static_cast<int>(list.size()),
            [&](int i) { return list[i]; });
      last = list;
    }
  }

 private:
  void Sort(std::span<KeyedItem> all, const KeyFormat& format) const {
    struct Part {
      std::span<KeyedItem> items;
      size_t depth;
    };
    constexpr size_t kFewItems = 1024;
    std::vector<KeyedItem> spare;
    std::vector<Part> parts = {{all, 0}};
    while (!parts.empty()) {
      const auto [items, depth] = parts.back();
      parts.pop_back();
      for (KeyedItem& item : items) {
        item.key = format.Pack(items_[item.item], depth);
      }
      if (items.size() < kFewItems) {
        std::ranges::sort(items, {}, &KeyedItem::key);
      } else {
        RadixSort<KeyedItem>(items, format.num_bits(), &spare);
      }
      const size_t next = depth + format.num_tokens();
      for (size_t begin = 0, end; begin < items.size(); begin = end) {
        end = begin + 1;
        while (end < items.size() && items[end].key == items[begin].key) ++end;
        const bool go_on =
            format.LengthOf(items[begin].key) == format.num_tokens();
        if (end - begin > 1 && go_on) {
          parts.push_back({items.subspan(begin, end - begin), next});
        }
      }
    }
  }

  const TokenLists& items_;
  std::vector<uint32_t> sorted_;
};

// Counts how often numbers come. Nearly all are small.
class NumberCounts {
 public:
  void Add(int32_t number) {
    if (number >= kSmall) {
      ++large_[number];
      return;
    }
    if (number >= std::ssize(small_)) small_.resize(number + 1);
    ++small_[number];
  }
  ItemTrieArrays::Numbers Descending() const {
    ItemTrieArrays::Numbers counts(large_.begin(), large_.end());
    for (size_t number = small_.size(); number-- > 1;) {
      if (small_[number] > 0) {
        counts.emplace_back(static_cast<int32_t>(number), small_[number]);
      }
    }
    return counts;
  }

 private:
  static constexpr int32_t kSmall = 4096;

  std::vector<int32_t> small_;
  std::map<int32_t, int32_t, std::greater<>> large_;
};

// Writes the trie of sorted items: counts the nodes of each level first, and
// then writes each node to its place.
class TrieWriter {
 public:
  TrieWriter(TokenId max_token, int32_t max_length) : levels_(max_length + 1) {
    levels_[0].num_nodes = 1;
    out_.before_last.resize(max_token + 1);
  }

  template <typename Items>
  ItemTrieArrays Write(const Items& items) {
    items.ForEach([&](int num_common, int length, const auto&) {
      for (int level = num_common + 1; level <= length; ++level) {
        ++levels_[level].num_nodes;
      }
    });
    Allocate();
    items.ForEach([&](int num_common, int length, const auto& token_at) {
      Add(num_common, length, token_at);
    });
    for (Level& level : levels_) {
      EndFamily(&level);
      out_.levels.push_back({.num_nodes = level.num_nodes,
                             .num_children = level.children.Descending(),
                             .num_ends = level.ends.Descending()});
    }
    return std::move(out_);
  }

 private:
  using Node = ItemTrie::Node;
  struct Level {
    Node num_nodes = 0;
    Node next = 0;             // place of the next node
    int32_t num_children = 0;  // so far, of the latest parent
    int32_t num_ends = 0;
    NumberCounts children = {};
    NumberCounts ends = {};
  };

  void Allocate() {
    Node num_nodes = 0;
    for (Level& level : levels_) {
      level.next = num_nodes;
      num_nodes += level.num_nodes;
    }
    out_.tokens.resize(num_nodes);
    for (ItemTrieArrays::Bits* bits : {&out_.inner, &out_.first, &out_.ends}) {
      bits->resize(ItemTrieArrays::NumWords(num_nodes));
    }
    levels_[0].next = 1;
  }

  static void Set(Node node, ItemTrieArrays::Bits* bits) {
    (*bits)[node / 64] |= uint64_t{1} << (node % 64);
  }

  template <typename TokenAt>
  void Add(int num_common, int length, const TokenAt& token_at) {
    // The first node of the item that is new has siblings before it, unless the
    // last item ended at its parent.
    bool is_first = num_common == last_length_;
    for (int i = num_common; i < length; ++i) {
      Level& level = levels_[i + 1];
      const Node node = level.next++;
      out_.tokens[node] = token_at(i);
      if (is_first) {
        Set(node, &out_.first);
        const Node parent = levels_[i].next - 1;
        Set(parent, &out_.inner);
        if (i > 0) out_.before_last[out_.tokens[parent]] = true;
        EndFamily(&level);
      }
      ++level.num_children;
      is_first = true;
    }
    Level& level = levels_[length];
    Set(level.next - 1, &out_.ends);
    ++level.num_ends;
    last_length_ = length;
  }

  static void EndFamily(Level* level) {
    if (level->num_children == 0) return;
    level->children.Add(std::exchange(level->num_children, 0));
    level->ends.Add(std::exchange(level->num_ends, 0));
  }

  ItemTrieArrays out_;
  std::vector<Level> levels_;
  int last_length_ = 0;
};

}  // namespace

ItemTrieArrays BuildItemTrie(const TokenLists& items) {
  CHECK(std::ssize(items.tokens) <= ItemTrieArrays::kMaxTokens)
      << items.tokens.size() << " tokens";
  int64_t max_length = 0;
  for (int64_t i = 0; i < items.size(); ++i) {
    max_length = std::max<int64_t>(max_length, items[i].size());
  }
  const TokenId max_token =
      items.tokens.empty() ? -1 : std::ranges::max(items.tokens);
  const KeyFormat format(max_token);
  const auto length = static_cast<int32_t>(max_length);
  TrieWriter writer(max_token, length);
  if (max_length <= format.num_tokens()) {
    return writer.Write(
        PackedItems(items, format.ForLength(std::max(1, length))));
  }
  return writer.Write(LongItems(items, format));
}

}  // namespace espalier
