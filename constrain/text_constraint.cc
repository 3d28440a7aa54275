#include "constrain/text_constraint.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/field_error.h"
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

const TokenList* TextConstraint::MakeList(State state, int32_t room,
                                          std::vector<int32_t>* needs) const {
  TokenMask mask(texts_.vocab_size());
  int num_last = texts_.LegalTokens(state, room - 1, &mask, needs);
  if (texts_.accepts(state)) {
    for (const TokenId token : end_ids_) mask.Add(token);
    num_last += static_cast<int>(end_ids_.size());
  }
  mask.Normalize();
  return lists_.Keep(std::move(mask), num_last);
}

const TokenList* TextConstraint::ListOf(State state) const {
  std::vector<int32_t> needs;
  const TokenList* const made =
      MakeList(state, TokenConstraint::kNever, &needs);
  const std::lock_guard lock(mutex_);
  const TokenList* const list = list_of_[state].load(std::memory_order_relaxed);
  if (list != nullptr) return list;
  needs_of_[state] = KeepNeeds(std::move(needs));
  list_of_[state].store(made, std::memory_order_release);
  return made;
}

const TokenList* TextConstraint::NearList(State state, int32_t room) const {
  const std::vector<int32_t>& needs = *needs_of_[state];
  const std::pair<State, int64_t> key = {
      state, std::ranges::lower_bound(needs, room) - needs.begin()};
  {
    const std::lock_guard lock(mutex_);
    const auto found = near_.find(key);
    if (found != near_.end()) return found->second;
  }
  const TokenList* const made = MakeList(state, room, /*needs=*/nullptr);
  const std::lock_guard lock(mutex_);
  const auto [it, is_new] = near_.try_emplace(key, made);
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
  num_kept_bytes_ += static_cast<int64_t>(num_bytes);
}

std::optional<ConstraintTables> TextConstraint::tables() const {
  ConstraintTables tables = texts_.tables();
  tables.num_end_ids = static_cast<int>(end_ids_.size());
  tables.end_ids = end_ids_.data();
  return tables;
}

bool TextConstraint::is_full() const {
  const std::lock_guard lock(mutex_);
  return lists_.num_bytes() + num_kept_bytes_ > max_list_bytes_;
}

int64_t TextConstraint::num_bytes() const {
  // Also what is kept of each state: whether it accepts and ends, its fewest
  // bytes and tokens to an end, its list and its needs.
  constexpr int64_t kBytesOfState = 26;
  const std::lock_guard lock(mutex_);
  return texts_.automaton().table_bytes() +
         texts_.num_states() * kBytesOfState + lists_.num_bytes() +
         num_kept_bytes_;
}

}  // namespace espalier
