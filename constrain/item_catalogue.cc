#include "constrain/item_catalogue.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace espalier {
namespace {

int64_t SumOfLargest(std::span<const std::pair<int32_t, int32_t>> numbers,
                     int64_t count) {
  int64_t sum = 0;
  for (const auto& [number, num_nodes] : numbers) {
    const int64_t taken = std::min<int64_t>(count, num_nodes);
    sum += taken * number;
    count -= taken;
    if (count == 0) break;
  }
  return sum;
}

}  // namespace

ItemCatalogue::ItemCatalogue(ItemTrieArrays arrays)
    : tokens_(std::move(arrays.tokens)),
      inner_(num_nodes(), std::move(arrays.inner)),
      first_(num_nodes(), std::move(arrays.first)),
      ends_(num_nodes(), std::move(arrays.ends)),
      before_last_(std::move(arrays.before_last)),
      max_token_(static_cast<TokenId>(before_last_.size()) - 1) {
  Node begin = 0;
  for (ItemTrieArrays::Level& level : arrays.levels) {
    const Range range = {begin, begin + level.num_nodes};
    const int32_t num_leaves = NumLeaves(range);
    const auto length = static_cast<int32_t>(levels_.size());
    if (length > 0 && num_leaves > 0 && min_leaf_length_ == 0) {
      min_leaf_length_ = length;
    }
    level_begins_.push_back(begin);
    Level& made = levels_.emplace_back();
    made.num_children = std::move(level.num_children);
    if (num_leaves < range.size()) made.num_ends = std::move(level.num_ends);
    begin = range.end;
  }
  level_begins_.push_back(begin);
}

ItemCatalogue::Node ItemCatalogue::Find(
    std::span<const TokenId> sequence) const {
  Node node = kRoot;
  for (size_t i = 0; i < sequence.size() && node != kNone; ++i) {
    node = Child(node, sequence[i]);
  }
  return node;
}

std::vector<TokenId> ItemCatalogue::PathTo(Node node) const {
  std::vector<TokenId> path(LevelOf(node));
  for (auto token = path.rbegin(); token != path.rend(); ++token) {
    *token = tokens_[node];
    // The children of the n-th inner node begin at the n-th first one.
    node = static_cast<Node>(inner_.Select(first_.Rank(node + 1) - 1));
  }
  return path;
}

std::vector<TokenId> ItemCatalogue::ItemWithBeforeLast(TokenId token) const {
  Node node = kRoot + 1;
  while (tokens_[node] != token || !has_children(node)) ++node;
  do {
    node = Children(node).begin;
  } while (!is_end(node));
  return PathTo(node);
}

std::shared_ptr<const ItemCatalogue::EndedItems> ItemCatalogue::EndedBy(
    std::span<const TokenId> tokens, int32_t length) const {
  constexpr size_t kMaxKept = 4;
  if (length < 1 || length > max_length() || tokens.empty()) return nullptr;
  const auto is_asked = [&](const Ended& ended) {
    return ended.length == length && std::ranges::equal(ended.tokens, tokens);
  };
  {
    const std::lock_guard lock(ended_->mutex);
    const auto known = std::ranges::find_if(ended_->all, is_asked);
    if (known != ended_->all.end()) return known->items;
  }
  auto ended = std::make_shared<EndedItems>();
  ended->level_ = {level_begins_[length], level_begins_[length + 1]};
  ended->bits_ = RankBits(ended->level_.size());
  for (Node node = ended->level_.begin; node < ended->level_.end; ++node) {
    const TokenId token = tokens_[node];
    // Most are beyond them.
    if (token < tokens.front() || token > tokens.back()) continue;
    if (ends_[node] && std::ranges::binary_search(tokens, token)) {
      ended->bits_.Set(node - ended->level_.begin);
    }
  }
  ended->bits_.Finish();
  if (ended->bits_.num_ones() == 0) ended = nullptr;
  const std::lock_guard lock(ended_->mutex);
  std::vector<Ended>& latest = ended_->all;
  // Another thread may have added it.
  std::erase_if(latest, is_asked);
  if (latest.size() == kMaxKept) latest.erase(latest.begin());
  latest.push_back({{tokens.begin(), tokens.end()}, length, ended});
  return ended;
}

int64_t ItemCatalogue::MaxChildren(int64_t num_nodes) const {
  int64_t most = 0;
  for (const Level& level : levels_) {
    most = std::max(most, SumOfLargest(level.num_children, num_nodes));
  }
  return most;
}

int64_t ItemCatalogue::MaxEnds(int64_t num_nodes) const {
  int64_t most = 0;
  for (const Level& level : levels_) {
    most = std::max(most, SumOfLargest(level.num_ends, num_nodes));
  }
  return most;
}

int64_t ItemCatalogue::num_bytes() const {
  int64_t num_bytes = static_cast<int64_t>(
      tokens_.capacity() * sizeof(TokenId) + before_last_.capacity() / 8 +
      level_begins_.capacity() * sizeof(Node));
  for (const RankBits* bits : {&inner_, &first_, &ends_}) {
    num_bytes += bits->num_bytes();
  }
  for (const Level& level : levels_) {
    num_bytes +=
        static_cast<int64_t>(sizeof(level) + (level.num_children.capacity() +
                                              level.num_ends.capacity()) *
                                                 sizeof(Numbers::value_type));
  }
  return num_bytes;
}

}  // namespace espalier
