// SearchWatcher: callback after each step of one request, and when it ends
// early, on its strand.
#pragma once

#include "beam/strategy/decode_strategy.h"

namespace espalier {

class TokenLogProbs;  // beam/strategy/token_logprobs.h

class SearchWatcher {
 public:
  virtual ~SearchWatcher() = default;

  // Called when `strategy` has applied a step's result; it may be done.
  //   logprobs  for all nodes of its tree; null if the request has none
  virtual void OnStep(const DecodeStrategy& strategy,
                      const TokenLogProbs* logprobs) = 0;

  // Called when the search ended between two steps
  // (DecodeStrategy::FinishLive), without new tokens.
  virtual void OnFinishEarly(const DecodeStrategy& strategy) = 0;
};

}  // namespace espalier
