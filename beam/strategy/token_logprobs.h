// TokenLogProbs: the log-probabilities of the tokens of a group's sequences,
// for requests that report them (GenerationParams::logprobs). A step's answer
// has them of every candidate. Those of candidates that the strategy kept or
// finished are stored by their place in the tree of all texts, so a hypothesis
// finds them by its tokens, whatever became of its ancestors' other children.
// Equal texts are one place: the model scores them the same.
//
// Thread safety: none of its own.
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
  // Takes the log-probabilities of the candidates of `result`.
  //   decisions  what the strategy made of them (DecodeStrategy::Advance)
  // REQUIRES: result.logprobs has one of every candidate.
  void Take(const SelectionResult& result, std::span<const Decision> decisions);

  // Of each of `tokens`, which are all that was generated of a sequence.
  // REQUIRES: Take has taken all of them.
  std::vector<TokenLogProb> Of(std::span<const TokenId> tokens) const;

  // Of the token that `node` ends in.
  // REQUIRES: Take has taken it, and it is not the root.
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
