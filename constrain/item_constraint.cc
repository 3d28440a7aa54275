#include "constrain/item_constraint.h"

#include <algorithm>
#include <limits>

#include "base/field_error.h"
#include "base/status.h"
#include "base/wording.h"

namespace espalier {
namespace {

absl::Status TooManyLists(int64_t max_bytes) {
  return MarkPermanent(
      MakeFieldError(absl::StatusCode::kResourceExhausted,
                     "`constraint` must need lists of legal tokens of at most ",
                     MemorySize{max_bytes}, " for one request"));
}

}  // namespace

ItemConstraint::ItemConstraint(std::shared_ptr<const ItemCatalogue> items,
                               ItemOptions options)
    : items_(std::move(items)),
      options_(std::move(options)),
      // Before min_length no id may end the output, so an item that ends by one
      // there is too short.
      too_short_(items_->EndedBy(options_.end_ids, options_.min_length)),
      too_many_lists_(TooManyLists(options_.max_list_bytes)) {
  tables_.trie = items_->trie();
  tables_.num_end_ids = static_cast<int32_t>(options_.end_ids.size());
  tables_.end_ids = options_.end_ids.data();
  tables_.min_length = options_.min_length;
  if (too_short_ != nullptr) tables_.too_short = too_short_->view();
  Exclude();
  const auto all = static_cast<Node>(items_->num_nodes());
  has_inner_ends_ = items_->num_items() > items_->NumLeaves({0, all});
}

void ItemConstraint::Exclude() {
  std::vector<Range> ranges;
  // Returns the node of a sequence, unless no item begins with it, and then the
  // nodes above it.
  const auto find = [&](std::span<const TokenId> sequence) {
    const size_t num_above = above_.size();
    Node node = ItemCatalogue::kRoot;
    for (const TokenId token : sequence) {
      above_.push_back(node);
      node = items_->Child(node, token);
      if (node != ItemCatalogue::kNone) continue;
      above_.resize(num_above);
      break;
    }
    return node;
  };
  for (int64_t i = 0; i < options_.excluded.size(); ++i) {
    const Node node = find(options_.excluded[i]);
    if (node == ItemCatalogue::kNone) continue;
    ranges.push_back({node, node + 1});
  }
  for (int64_t i = 0; i < options_.excluded_prefixes.size(); ++i) {
    const Node node = find(options_.excluded_prefixes[i]);
    if (node == ItemCatalogue::kNone) continue;
    for (Range range = {node, node + 1}; !range.empty();
         range = items_->Below(range)) {
      ranges.push_back(range);
    }
  }
  std::ranges::sort(above_);
  above_.erase(std::unique(above_.begin(), above_.end()), above_.end());
  std::ranges::sort(ranges, {}, &Range::begin);
  int64_t num_ends = 0;
  for (const Range& range : ranges) {
    const Node begin =
        std::max(range.begin, excluded_.empty() ? 0 : excluded_.back().end);
    if (begin >= range.end) continue;
    excluded_.push_back({begin, range.end, num_ends});
    num_ends += tables_.NumLongEnds({begin, range.end});
  }
  tables_.num_excluded = static_cast<int32_t>(excluded_.size());
  tables_.excluded = excluded_.data();
  tables_.num_above = static_cast<int32_t>(above_.size());
  tables_.above = above_.data();
}

Constraint::Legal ItemConstraint::LegalTokens(State state, int32_t room) const {
  if (state == tables_.ended() || room < 1) return {};
  const int32_t level = items_->LevelOf(state);
  if (IsSlice(state, level, room)) {
    const Range children = items_->Children(state);
    return {items_->TokensOf(children), items_->NumLeaves(children)};
  }
  const Key key = KeyOf(state, level, room);
  {
    const std::lock_guard lock(mutex_);
    const auto it = lists_.find(key);
    if (it != lists_.end()) return {it->second.tokens, it->second.num_last};
    if (num_list_bytes_ > options_.max_list_bytes) {
      return {.error = &too_many_lists_};
    }
  }
  List list = MakeList(state, level, room);
  const std::lock_guard lock(mutex_);
  const auto [it, is_new] = lists_.try_emplace(key, std::move(list));
  if (is_new) {
    // The node of a tree has four words more.
    num_list_bytes_ +=
        static_cast<int64_t>(sizeof(*it) + 4 * sizeof(void*) +
                             it->second.kept.capacity() * sizeof(TokenId));
  }
  return {it->second.tokens, it->second.num_last};
}

bool ItemConstraint::IsListed(State state, int32_t room) const {
  if (state == tables_.ended() || room < 1) return true;
  const int32_t level = items_->LevelOf(state);
  if (IsSlice(state, level, room)) return true;
  const std::lock_guard lock(mutex_);
  return lists_.contains(KeyOf(state, level, room));
}

bool ItemConstraint::TryList(State state, int32_t room,
                             int64_t max_effort) const {
  if (state == tables_.ended() || room < 1) return true;
  const int32_t level = items_->LevelOf(state);
  if (IsSlice(state, level, room)) return true;
  // All tokens are copied, and the levels below some are looked at.
  constexpr int64_t kEffortOfLevel = 8;
  const Range children = items_->Children(state);
  const int64_t num_looked_at = tables_.FitsAll(level, room)
                                    ? std::ssize(Touched(children))
                                    : children.size();
  const int64_t num_levels = std::min(room, items_->max_length() - level);
  const int64_t effort =
      children.size() + kEffortOfLevel * num_levels * num_looked_at;
  if (effort > max_effort) return false;
  LegalTokens(state, room);
  return true;
}

std::vector<ItemCatalogue::Node> ItemConstraint::Touched(Range range) const {
  std::vector<Node> touched(std::ranges::lower_bound(above_, range.begin),
                            std::ranges::lower_bound(above_, range.end));
  auto it = std::ranges::upper_bound(excluded_, range.begin, {},
                                     &ItemTables::Excluded::end);
  for (; it != excluded_.end() && it->begin < range.end; ++it) {
    const Node end = std::min(it->end, range.end);
    for (Node node = std::max(it->begin, range.begin); node < end; ++node) {
      touched.push_back(node);
    }
  }
  std::ranges::sort(touched);
  touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
  return touched;
}

int ItemConstraint::AppendLegal(Range children, int32_t level, int32_t room,
                                std::vector<TokenId>* tokens) const {
  int num_last = 0;
  for (Node child = children.begin; child < children.end; ++child) {
    if (!tables_.Reaches({child, child + 1}, level + 1, room - 1)) continue;
    tokens->push_back(items_->token(child));
    num_last += ends(child, room - 1) ? 1 : 0;
  }
  return num_last;
}

int ItemConstraint::AppendNotExcluded(Range children, int32_t level,
                                      int32_t room,
                                      std::vector<TokenId>* tokens) const {
  int num_last = 0;
  Node next = children.begin;
  const auto append_to = [&](Node end) {
    const Range free = {next, end};
    const std::span<const TokenId> legal = items_->TokensOf(free);
    tokens->insert(tokens->end(), legal.begin(), legal.end());
    num_last += items_->NumLeaves(free);
  };
  for (const Node child : Touched(children)) {
    append_to(child);
    num_last += AppendLegal({child, child + 1}, level, room, tokens);
    next = child + 1;
  }
  append_to(children.end);
  return num_last;
}

ItemConstraint::List ItemConstraint::MakeList(Node node, int32_t level,
                                              int32_t room) const {
  List list;
  const Range children = items_->Children(node);
  list.num_last = tables_.FitsAll(level, room)
                      ? AppendNotExcluded(children, level, room, &list.kept)
                      : AppendLegal(children, level, room, &list.kept);
  bool are_all = std::ssize(list.kept) == children.size();
  if (!children.empty() && tables_.AllowsEndId(node, level) &&
      !ends(node, room)) {
    for (const TokenId id : options_.end_ids) {
      const auto at = std::ranges::lower_bound(list.kept, id);
      if (at != list.kept.end() && *at == id) continue;
      list.kept.insert(at, id);
      ++list.num_last;
      are_all = false;
    }
  }
  if (are_all) list.kept = {};
  list.kept.shrink_to_fit();
  list.tokens = are_all ? items_->TokensOf(children)
                        : std::span<const TokenId>(list.kept);
  return list;
}

std::optional<ConstraintTables> ItemConstraint::tables() const {
  if (options_.vocab_size == 0) return std::nullopt;
  if (has_inner_ends_ && !has_end_ids()) return std::nullopt;
  return ConstraintTables{.vocab_size = options_.vocab_size, .items = tables_};
}

int64_t ItemConstraint::MaxLegal(int64_t num_sequences) const {
  const int64_t num_end_ids =
      has_inner_ends_ ? num_sequences * std::ssize(options_.end_ids) : 0;
  return items_->MaxChildren(num_sequences) + num_end_ids;
}

int64_t ItemConstraint::MaxLast(int64_t num_sequences) const {
  const int64_t num_end_ids =
      has_inner_ends_ ? num_sequences * std::ssize(options_.end_ids) : 0;
  return items_->MaxEnds(num_sequences) + num_end_ids;
}

int32_t ItemConstraint::MinRoom() const {
  Range range = {ItemCatalogue::kRoot, ItemCatalogue::kRoot + 1};
  for (int32_t level = 0; !range.empty(); ++level) {
    if (level > 0 && tables_.NumEnds(range, level) > 0) return level;
    range = items_->Below(range);
  }
  return -1;
}

}  // namespace espalier
