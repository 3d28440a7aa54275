#include "constrain/token_constraint.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/status.h"

namespace espalier {

absl::StatusOr<TokenConstraint> TokenConstraint::Make(
    std::shared_ptr<const ByteAutomaton> automaton,
    std::shared_ptr<const TokenVocabulary> vocabulary,
    const CompileLimits& limits) {
  TokenConstraint constraint(std::move(automaton), std::move(vocabulary));
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
    if (accepts(state) || (has_all_bytes && state < start())) {
      live_[state] = 1;
      found.push_back(state);
    }
    if (has_all_bytes && state < start()) continue;
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
  if (has_all_bytes) live_.clear();
  return absl::OkStatus();
}

template <typename Visit>
void TokenConstraint::ForEachNext(State state, const Visit& visit) const {
  TrieAt(state).ForEachLegal(*automaton_, AutomatonState(state), visit);
  if (state != start() || !vocabulary_->first) return;
  for (const TokenId token : dropped_spaces_) visit(token, after_space());
}

TokenConstraint::State TokenConstraint::Advance(State state,
                                                TokenId token) const {
  if (state == start() && IsDroppedSpace(token)) {
    return IsLive(after_space()) ? after_space() : kNone;
  }
  const std::string_view bytes = TrieAt(state).BytesOf(token);
  if (bytes.empty()) return kNone;
  const State next = automaton_->Next(AutomatonState(state), bytes);
  return next != kNone && IsLive(next) ? next : kNone;
}

void TokenConstraint::LegalTokens(State state,
                                  std::vector<TokenId>* tokens) const {
  tokens->clear();
  ForEachNext(state, [&](TokenId token, State next) {
    if (IsLive(next)) tokens->push_back(token);
  });
  std::sort(tokens->begin(), tokens->end());
}

}  // namespace espalier
