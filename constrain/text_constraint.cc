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
  if (constraint->LegalTokens(constraint->start()).tokens.empty()) {
    return InvalidArgument(
        "the empty text alone is in the language, and no EOS id ends it");
  }
  return constraint;
}

TextConstraint::TextConstraint(TokenConstraint texts,
                               std::vector<TokenId> end_ids,
                               int64_t max_list_bytes)
    : texts_(std::move(texts)),
      end_ids_(std::move(end_ids)),
      max_last_(texts_.MaxLastTokens() + std::ssize(end_ids_)),
      max_list_bytes_(max_list_bytes),
      list_of_(new std::atomic<const TokenList*>[texts_.num_states()]()) {}

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

Constraint::Legal TextConstraint::LegalTokens(State state) const {
  if (state == ended()) return {};
  const TokenList* list = list_of_[state].load(std::memory_order_acquire);
  if (list == nullptr) list = ListOf(state);
  return {list->tokens, list->num_last, list->exceeds_memory};
}

const TextConstraint::TokenList* TextConstraint::ListOf(State state) const {
  auto list = std::make_unique<TokenList>();
  std::vector<TokenId>& tokens = list->tokens;
  list->num_last = texts_.LegalTokens(state, &tokens);
  if (texts_.accepts(state)) {
    const auto middle =
        tokens.insert(tokens.end(), end_ids_.begin(), end_ids_.end());
    std::inplace_merge(tokens.begin(), middle, tokens.end());
    list->num_last += static_cast<int>(end_ids_.size());
  }
  tokens.shrink_to_fit();
  const size_t num_bytes = tokens.size() * sizeof(TokenId);
  const uint64_t hash = HashOf(std::string_view(
      reinterpret_cast<const char*>(tokens.data()), num_bytes));
  const std::lock_guard lock(mutex_);
  const TokenList* kept = nullptr;
  const auto [begin, end] = lists_.equal_range(hash);
  for (auto it = begin; it != end && kept == nullptr; ++it) {
    const TokenList& other = *it->second;
    if (other.num_last == list->num_last && other.tokens == tokens) {
      kept = &other;
    }
  }
  if (kept == nullptr) {
    kept = list.get();
    const int64_t num_list_bytes =
        num_list_bytes_ + static_cast<int64_t>(num_bytes + sizeof(TokenList));
    list->exceeds_memory = num_list_bytes > max_list_bytes_;
    lists_.emplace(hash, std::move(list));  // may throw
    num_list_bytes_ = num_list_bytes;
  }
  list_of_[state].store(kept, std::memory_order_release);
  return kept;
}

absl::Status TextConstraint::CheckMemory() const {
  const std::lock_guard lock(mutex_);
  if (num_list_bytes_ <= max_list_bytes_) return absl::OkStatus();
  return MakeFieldError(absl::StatusCode::kResourceExhausted,
                        "the legal tokens of the states of `constraint` take ",
                        MemorySize{num_list_bytes_}, ", which may have ",
                        MemorySize{max_list_bytes_});
}

int64_t TextConstraint::num_bytes() const {
  // Also what is kept of each state: whether it accepts, ends and is live, its
  // fewest bytes to an end, and its list.
  constexpr int64_t kBytesOfState = 16;
  const std::lock_guard lock(mutex_);
  return texts_.automaton().table_bytes() +
         texts_.num_states() * kBytesOfState + num_list_bytes_;
}

}  // namespace espalier
