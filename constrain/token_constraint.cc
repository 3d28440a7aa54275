#include "constrain/token_constraint.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "constrain/forced_bytes.h"

namespace espalier {
namespace {

// Adds a value unless it is there.
void AddSorted(int32_t value, std::vector<int32_t>* values) {
  const auto place = std::ranges::lower_bound(*values, value);
  if (place == values->end() || *place != value) values->insert(place, value);
}

}  // namespace

absl::StatusOr<TokenConstraint> TokenConstraint::Make(
    std::shared_ptr<const ByteAutomaton> automaton,
    std::shared_ptr<const TokenVocabulary> vocabulary,
    const CompileLimits& limits, bool opens_text) {
  TokenConstraint constraint(std::move(automaton), std::move(vocabulary),
                             opens_text);
  const TokenVocabulary& tokens = *constraint.vocabulary_;
  constraint.more_ = CountTokensToEnd(constraint.automaton(), tokens.suffixes,
                                      limits.max_steps);
  // Then states that tokens can complete may seem to be others.
  if (!constraint.has_exact_counts() && !tokens.inside.has_all_bytes()) {
    return InvalidArgument(
        "finding the states that tokens can complete takes more than ",
        limits.max_steps, " steps, the limit");
  }
  constraint.CountFromOpening();
  if (!constraint.IsLive(constraint.start())) {
    return InvalidArgument("the vocabulary can spell no text of the language");
  }
  return constraint;
}

void TokenConstraint::CountFromOpening() {
  more_.more.resize(num_states(), more_.more[ByteAutomaton::kStart]);
  if (!opens_text_ || !vocabulary_->first) return;
  for (const State state : {after_space(), opening()}) {
    int32_t fewest = kNever;
    TokenMask none(vocab_size());
    const auto count = [&](State next, size_t) {
      fewest = std::min(fewest, min_tokens(next));
      return false;
    };
    AddLegal(state, count, &none);
    more_.more[state] = fewest == kNever ? kNever : fewest + 1;
  }
}

template <typename End>
void TokenConstraint::AddLegal(State state, const End& end,
                               TokenMask* mask) const {
  const auto next = [this](State from, uint8_t byte) {
    return automaton_->Next(from, byte);
  };
  TrieAt(state).AddLegal(next, next, AutomatonState(state), end, mask);
  if (state != opening() || dropped_spaces_.empty()) return;
  if (!end(after_space(), dropped_spaces_.size())) return;
  for (const TokenId token : dropped_spaces_) mask->Add(token);
}

TokenConstraint::State TokenConstraint::Advance(State state,
                                                TokenId token) const {
  if (state == opening() && IsDroppedSpace(token)) {
    return IsLive(after_space()) ? after_space() : kNone;
  }
  const std::string_view bytes = TrieAt(state).BytesOf(token);
  if (bytes.empty()) return kNone;
  const State next = automaton_->Next(AutomatonState(state), bytes);
  return next != kNone && IsLive(next) ? next : kNone;
}

int TokenConstraint::LegalTokens(State state, int32_t max_tokens,
                                 std::vector<TokenId>* tokens,
                                 std::vector<int32_t>* needs) const {
  TokenMask mask(vocab_size());
  const int num_last = LegalTokens(state, max_tokens, &mask, needs);
  mask.Normalize();
  *tokens = mask.ToList();
  return num_last;
}

int TokenConstraint::LegalTokens(State state, int32_t max_tokens,
                                 TokenMask* mask,
                                 std::vector<int32_t>* needs) const {
  size_t num_last = 0;
  if (needs != nullptr) needs->clear();
  int32_t added = kNever;  // the last one of needs
  const auto end = [&](State next, size_t count) {
    const int32_t more = min_more_tokens(next);
    if (needs != nullptr && more != kNever && more != added) {
      added = more;
      AddSorted(more, needs);
    }
    if (more > max_tokens) {
      if (!accepts(next)) return false;
      num_last += count;
    }
    return true;
  };
  AddLegal(state, end, mask);
  return static_cast<int>(num_last);
}

void TokenConstraint::AppendForcedBytes(State state, size_t max_bytes,
                                        std::string* bytes) const {
  AppendForced(
      *automaton_, AutomatonState(state),
      [this](State at) { return automaton_->accepts(at); },
      [this](State at, uint8_t byte) {
        const State next = automaton_->Next(at, byte);
        return next != kNone && IsLive(next) ? next : kNone;
      },
      max_bytes, bytes);
}

ConstraintTables TokenConstraint::tables() const {
  ConstraintTables tables = {.vocab_size = vocab_size(),
                             .inside = vocabulary_->inside.texts(),
                             .num_states = automaton_->num_states(),
                             .num_classes = automaton_->num_classes(),
                             .classes = automaton_->tables().classes.data(),
                             .next = automaton_->tables().next.data(),
                             .accepts = automaton_->tables().accepts.data(),
                             .more = more_.more.data()};
  if (vocabulary_->first) {
    tables.first = vocabulary_->first->texts();
    tables.drops_all_spaces = vocabulary_->drops_all_spaces;
  }
  return tables;
}

int64_t TokenConstraint::MaxLastTokens() const {
  std::array<bool, 256> is_last_byte = {};
  for (State state = 0; state < opening(); ++state) {
    for (int byte = 0; byte < 256; ++byte) {
      const State next = automaton_->Next(state, static_cast<uint8_t>(byte));
      if (next != kNone && accepts(next) && min_more_tokens(next) > 1) {
        is_last_byte[byte] = true;
      }
    }
  }
  const auto may_be_last = [&](const TokenTrie& trie, TokenId token) {
    const std::string_view bytes = trie.BytesOf(token);
    return !bytes.empty() && is_last_byte[static_cast<uint8_t>(bytes.back())];
  };
  int64_t count = 0;
  for (TokenId token = 0; token < vocab_size(); ++token) {
    if (may_be_last(vocabulary_->inside, token) || IsDroppedSpace(token) ||
        (vocabulary_->first && may_be_last(*vocabulary_->first, token))) {
      ++count;
    }
  }
  return count;
}

}  // namespace espalier
