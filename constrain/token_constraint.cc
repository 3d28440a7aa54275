#include "constrain/token_constraint.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace espalier {
namespace {

// Sorts different tokens. Many are sorted by a bit for each of the vocabulary.
void SortTokens(int vocab_size, std::vector<TokenId>* tokens) {
  constexpr size_t kFew = 256;
  if (tokens->size() <= kFew) return std::sort(tokens->begin(), tokens->end());
  std::vector<uint64_t> bits(static_cast<size_t>(vocab_size) / 64 + 1);
  for (const TokenId token : *tokens) {
    bits[token / 64] |= uint64_t{1} << (token % 64);
  }
  tokens->clear();
  for (size_t word = 0; word < bits.size(); ++word) {
    for (uint64_t left = bits[word]; left != 0; left &= left - 1) {
      tokens->push_back(
          static_cast<TokenId>(64 * word + std::countr_zero(left)));
    }
  }
}

}  // namespace

absl::StatusOr<TokenConstraint> TokenConstraint::Make(
    std::shared_ptr<const ByteAutomaton> automaton,
    std::shared_ptr<const TokenVocabulary> vocabulary,
    const CompileLimits& limits, bool opens_text) {
  TokenConstraint constraint(std::move(automaton), std::move(vocabulary),
                             opens_text);
  RETURN_IF_ERROR(constraint.FindLiveStates(limits));
  return constraint;
}

// A search against the steps that tokens make, from the accepting states that
// tokens reach. With a token for each byte every state of the automaton is
// live, and only the start may not be.
absl::Status TokenConstraint::FindLiveStates(const CompileLimits& limits) {
  CompileBudget budget(limits);
  const bool has_all_bytes = vocabulary_->inside.has_all_bytes();
  std::vector<std::vector<State>> sources(num_states());  // before each state
  std::vector<uint8_t> reached(num_states(), 0);
  std::vector<State> queue = {start()};
  reached[start()] = 1;
  std::vector<State> targets;
  std::vector<State> found;  // live states whose sources are to be visited
  live_.assign(num_states(), 0);
  for (size_t i = 0; i < queue.size(); ++i) {
    const State state = queue[i];
    if (accepts(state) || (has_all_bytes && state < opening())) {
      live_[state] = 1;
      found.push_back(state);
    }
    if (has_all_bytes && state < opening()) continue;
    targets.clear();
    ForEachNext(state, [&](TokenId, State next) { targets.push_back(next); });
    if (!budget.Take(1 + static_cast<int64_t>(targets.size())).ok()) {
      return InvalidArgument(
          "finding the states that tokens can complete takes more than ",
          limits.max_steps, " steps, the limit");
    }
    std::sort(targets.begin(), targets.end());
    targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
    for (const State target : targets) {
      sources[target].push_back(state);
      if (reached[target] == 0) queue.push_back(target);
      reached[target] = 1;
    }
  }
  while (!found.empty()) {
    const State state = found.back();
    found.pop_back();
    for (const State source : sources[state]) {
      if (live_[source] == 0) found.push_back(source);
      live_[source] = 1;
    }
  }
  if (live_[start()] == 0) {
    return InvalidArgument("the vocabulary can spell no text of the language");
  }
  if (has_all_bytes) {
    live_.clear();
    return absl::OkStatus();
  }
  last_.assign(num_states(), 1);
  for (State target = 0; target < num_states(); ++target) {
    if (live_[target] == 0) continue;
    for (const State source : sources[target]) last_[source] = 0;
  }
  return absl::OkStatus();
}

template <typename Visit>
void TokenConstraint::ForEachNext(State state, const Visit& visit) const {
  TrieAt(state).ForEachLegal(*automaton_, AutomatonState(state), visit);
  if (state != opening() || !vocabulary_->first) return;
  for (const TokenId token : dropped_spaces_) visit(token, after_space());
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

int TokenConstraint::LegalTokens(State state,
                                 std::vector<TokenId>* tokens) const {
  int num_last = 0;
  tokens->clear();
  ForEachNext(state, [&](TokenId token, State next) {
    if (!IsLive(next)) return;
    tokens->push_back(token);
    if (ends(next)) ++num_last;
  });
  SortTokens(vocab_size(), tokens);
  return num_last;
}

int64_t TokenConstraint::MaxLastTokens() const {
  std::array<bool, 256> is_last_byte = {};
  for (State state = 0; state < opening(); ++state) {
    for (int byte = 0; byte < 256; ++byte) {
      const State next = automaton_->Next(state, static_cast<uint8_t>(byte));
      if (next != kNone && ends(next)) is_last_byte[byte] = true;
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
