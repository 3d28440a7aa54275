// TokenLogProbs: what the model thought of the tokens of a group's sequences,
// for those that ask (GenerationParams::logprobs). A step's answer says it of
// every candidate; kept is what it says of those that the strategy made
// something of, by their place in the tree of all texts, so that a hypothesis
// gets it whatever became of its ancestors' twins. Equal texts are one: the
// model thinks the same of them.
//
// Thread safety: none of its own.
#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "beam/decode_strategy.h"
#include "exec_request/step_plan.h"

namespace espalier {

class TokenLogProbs {
 public:
  // Takes what `result` says of its candidates.
  //   decisions  what the strategy made of them (DecodeStrategy::Advance)
  // REQUIRES: result.logprobs has one of every candidate.
  void Take(const SelectionResult& result, std::span<const Decision> decisions);

  // Of each of `tokens`, which are all that was generated of a sequence.
  // REQUIRES: the sequence is known.
  std::vector<TokenLogProb> Of(std::span<const TokenId> tokens) const;

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
