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
  const TokenVocabulary& tokens = *constraint.vocabulary_;
  if (!tokens.inside.has_all_bytes() ||
      (tokens.first && !tokens.first->has_all_bytes())) {
    RETURN_IF_ERROR(constraint.FindLiveStates(limits));
  }
  return constraint;
}

// A search against the steps that tokens make, from the accepting states that
// tokens reach.
absl::Status TokenConstraint::FindLiveStates(const CompileLimits& limits) {
  CompileBudget budget(limits);
  const int num_states = automaton_->num_states() + 1;
  std::vector<std::vector<State>> sources(
      num_states);  // states before the tokens to each state
  std::vector<uint8_t> reached(num_states, 0);
  std::vector<State> queue = {start()};
  reached[start()] = 1;
  std::vector<State> targets;
  for (size_t i = 0; i < queue.size(); ++i) {
    targets.clear();
    TrieAt(queue[i]).ForEachLegal(
        *automaton_, AutomatonState(queue[i]),
        [&](TokenId, State target) { targets.push_back(target); });
    RETURN_IF_ERROR(budget.Take(1 + static_cast<int64_t>(targets.size())));
    std::sort(targets.begin(), targets.end());
    targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
    for (const State target : targets) {
      sources[target].push_back(queue[i]);
      if (reached[target] == 0) queue.push_back(target);
      reached[target] = 1;
    }
  }
  live_.assign(num_states, 0);
  std::vector<State> found;
  for (const State state : queue) {
    if (!accepts(state)) continue;
    live_[state] = 1;
    found.push_back(state);
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
    return InvalidArgument("the vocabulary can spell none of its texts");
  }
  return absl::OkStatus();
}

TokenConstraint::State TokenConstraint::Advance(State state,
                                                TokenId token) const {
  const std::string_view bytes = TrieAt(state).BytesOf(token);
  if (bytes.empty()) return kNone;
  const State next = automaton_->Next(AutomatonState(state), bytes);
  return next != kNone && IsLive(next) ? next : kNone;
}

void TokenConstraint::LegalTokens(State state,
                                  std::vector<TokenId>* tokens) const {
  tokens->clear();
  TrieAt(state).ForEachLegal(*automaton_, AutomatonState(state),
                             [&](TokenId token, State next) {
                               if (IsLive(next)) tokens->push_back(token);
                             });
  std::sort(tokens->begin(), tokens->end());
}

}  // namespace espalier
