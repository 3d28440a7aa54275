#include "beam/strategy/token_logprobs.h"

#include "base/check.h"

namespace espalier {

void TokenLogProbs::Take(const SelectionResult& result,
                         std::span<const Decision> decisions) {
  for (const Decision& decision : decisions) {
    if (!decision.node.has_value()) continue;
    const TokenLogProb& logprob = result.logprobs.at(decision.candidate_idx);
    const Place next = static_cast<Place>(logprobs_.size());
    const auto [child, is_new] =
        children_.try_emplace({PlaceOf(decision.parent), logprob.token}, next);
    if (is_new) logprobs_.push_back(logprob);
    if (places_.size() <= *decision.node) places_.resize(*decision.node + 1);
    places_[*decision.node] = child->second;
  }
}

std::vector<TokenLogProb> TokenLogProbs::Of(
    std::span<const TokenId> tokens) const {
  std::vector<TokenLogProb> logprobs;
  Place place = kRoot;
  for (const TokenId token : tokens) {
    const auto child = children_.find({place, token});
    CHECK(child != children_.end()) << "token " << token << " is not known";
    place = child->second;
    logprobs.push_back(logprobs_[place]);
  }
  return logprobs;
}

}  // namespace espalier
