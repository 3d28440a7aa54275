// TokenLogProbs: the log-probabilities of a group's tokens, for requests that
// report them (GenerationParams::logprobs). A step's result has them for every
// candidate. Those of kept or finished candidates are stored by their place in
// a tree of texts, so a hypothesis finds them by its tokens. Equal texts share
// a place, because the model scores them alike.
//
// Thread safety: not thread-safe.
#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "beam/strategy/decode_strategy.h"
#include "exec_request/step_plan.h"

namespace espalier {

class TokenLogProbs {
 public:
  // Stores the log-probabilities of the candidates of `result`.
  //   decisions  the strategy's decisions on them (DecodeStrategy::Advance)
  // REQUIRES: result.logprobs has one of every candidate.
  void Take(const SelectionResult& result, std::span<const Decision> decisions);

  // Returns the log-probabilities of `tokens`, all generated tokens of a
  // sequence.
  // REQUIRES: Take has stored all of them.
  std::vector<TokenLogProb> Of(std::span<const TokenId> tokens) const;

  // Returns the log-probability of the last token of `node`.
  // REQUIRES: Take has stored it, and it is not the root.
  const TokenLogProb& At(TokenTree::Node node) const {
    return logprobs_[places_[node]];
  }

 private:
  using Place = int;  // in the tree of texts; index into logprobs_
  static constexpr Place kRoot = -1;

  Place PlaceOf(TokenTree::Node node) const {
    return node == TokenTree::kRoot ? kRoot : places_[node];
  }

  std::map<std::pair<Place, TokenId>, Place> children_;
  std::vector<TokenLogProb> logprobs_;  // by place
  std::vector<Place> places_;           // by node
};

}  // namespace espalier
