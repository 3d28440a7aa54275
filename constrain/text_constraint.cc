#include "constrain/text_constraint.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "base/field_error.h"
#include "base/hash.h"
#include "base/status.h"

namespace espalier {

absl::StatusOr<std::shared_ptr<const TextConstraint>> TextConstraint::Make(
    TokenConstraint texts, std::vector<TokenId> end_ids,
    int64_t max_list_bytes) {
  std::shared_ptr<const TextConstraint> constraint(
      new TextConstraint(std::move(texts), std::move(end_ids), max_list_bytes));
  if (constraint->MinRoom(/*is_empty_text_legal=*/true) ==
      TokenConstraint::kNever) {
    return InvalidArgument(
        "the empty text alone is in the language, and no EOS id ends it");
  }
  constraint->ListOf(constraint->start());
  return constraint;
}

TextConstraint::TextConstraint(TokenConstraint texts,
                               std::vector<TokenId> end_ids,
                               int64_t max_list_bytes)
    : texts_(std::move(texts)),
      end_ids_(std::move(end_ids)),
      max_last_(texts_.MaxLastTokens() + std::ssize(end_ids_)),
      max_list_bytes_(max_list_bytes),
      list_of_(new std::atomic<const TokenList*>[texts_.num_states()]()),
      needs_of_(new const Needs*[texts_.num_states()]()) {}

bool TextConstraint::IsEndId(TokenId token) const {
  return std::ranges::binary_search(end_ids_, token);
}

Constraint::State TextConstraint::Advance(State state, TokenId token) const {
  if (state == ended() || token < 0 || token >= texts_.vocab_size()) {
    return kNone;
  }
  if (IsEndId(token)) return texts_.accepts(state) ? ended() : kNone;
  return texts_.Advance(state, token);
}

Constraint::Legal TextConstraint::LegalTokens(State state, int32_t room) const {
  if (state == ended() || room < 1) return {};
  const TokenList* list = list_of_[state].load(std::memory_order_acquire);
  if (list == nullptr) list = ListOf(state);
  const std::vector<int32_t>& needs = *needs_of_[state];
  if (!needs.empty() && room <= needs.back()) list = NearList(state, room);
  return {list->tokens, list->num_last};
}

std::unique_ptr<TextConstraint::TokenList> TextConstraint::MakeList(
    State state, int32_t room, std::vector<int32_t>* needs) const {
  auto list = std::make_unique<TokenList>();
  std::vector<TokenId>& tokens = list->tokens;
  list->num_last = texts_.LegalTokens(state, room - 1, &tokens, needs);
  if (texts_.accepts(state)) {
    const auto middle =
        tokens.insert(tokens.end(), end_ids_.begin(), end_ids_.end());
    std::inplace_merge(tokens.begin(), middle, tokens.end());
    list->num_last += static_cast<int>(end_ids_.size());
  }
  tokens.shrink_to_fit();
  return list;
}

const TextConstraint::TokenList* TextConstraint::ListOf(State state) const {
  std::vector<int32_t> needs;
  auto made = MakeList(state, TokenConstraint::kNever, &needs);
  const std::lock_guard lock(mutex_);
  const TokenList* list = list_of_[state].load(std::memory_order_relaxed);
  if (list != nullptr) return list;
  list = Keep(std::move(made));
  needs_of_[state] = KeepNeeds(std::move(needs));
  list_of_[state].store(list, std::memory_order_release);
  return list;
}

const TextConstraint::TokenList* TextConstraint::NearList(State state,
                                                          int32_t room) const {
  const std::vector<int32_t>& needs = *needs_of_[state];
  const std::pair<State, int64_t> key = {
      state, std::ranges::lower_bound(needs, room) - needs.begin()};
  {
    const std::lock_guard lock(mutex_);
    const auto found = near_.find(key);
    if (found != near_.end()) return found->second;
  }
  auto made = MakeList(state, room, /*needs=*/nullptr);
  const std::lock_guard lock(mutex_);
  // Before the entry: if either throws, no entry is without a list.
  const TokenList* const kept = Keep(std::move(made));
  const auto [it, is_new] = near_.try_emplace(key, kept);
  // The node of a tree has four words more.
  if (is_new) AddBytes(sizeof(*it) + 4 * sizeof(void*));
  return it->second;
}

const TextConstraint::Needs* TextConstraint::KeepNeeds(
    std::vector<int32_t> needs) const {
  needs.shrink_to_fit();
  const auto [it, is_new] = needs_.insert(std::move(needs));
  if (is_new) {
    AddBytes(sizeof(*it) + 4 * sizeof(void*) + it->size() * sizeof(int32_t));
  }
  return &*it;
}

void TextConstraint::AddBytes(size_t num_bytes) const {
  num_list_bytes_ += static_cast<int64_t>(num_bytes);
}

const TextConstraint::TokenList* TextConstraint::Keep(
    std::unique_ptr<TokenList> list) const {
  const size_t num_bytes = list->tokens.size() * sizeof(TokenId);
  const uint64_t hash = HashOf(std::string_view(
      reinterpret_cast<const char*>(list->tokens.data()), num_bytes));
  const auto [begin, end] = lists_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const TokenList& other = *it->second;
    if (other.num_last == list->num_last && other.tokens == list->tokens) {
      return &other;
    }
  }
  const TokenList* const kept = list.get();
  lists_.emplace(hash, std::move(list));  // may throw
  AddBytes(num_bytes + sizeof(TokenList));
  return kept;
}

std::optional<ConstraintTables> TextConstraint::tables() const {
  ConstraintTables tables = texts_.tables();
  tables.num_end_ids = static_cast<int>(end_ids_.size());
  tables.end_ids = end_ids_.data();
  return tables;
}

bool TextConstraint::is_full() const {
  const std::lock_guard lock(mutex_);
  return num_list_bytes_ > max_list_bytes_;
}

int64_t TextConstraint::num_bytes() const {
  // Also what is kept of each state: whether it accepts and ends, its fewest
  // bytes and tokens to an end, its list and its needs.
  constexpr int64_t kBytesOfState = 26;
  const std::lock_guard lock(mutex_);
  return texts_.automaton().table_bytes() +
         texts_.num_states() * kBytesOfState + num_list_bytes_;
}

}  // namespace espalier
