// SearchWatcher: is called after each step of one request, and when it ends
// early, on its strand.
#pragma once

#include "beam/strategy/decode_strategy.h"

namespace espalier {

class TokenLogProbs;  // beam/strategy/token_logprobs.h

class SearchWatcher {
 public:
  virtual ~SearchWatcher() = default;

  // `strategy` has taken a step's answer; it may be done.
  //   logprobs  of all nodes of its tree; null if the request has none
  virtual void OnStep(const DecodeStrategy& strategy,
                      const TokenLogProbs* logprobs) = 0;

  // The search was ended between two steps (DecodeStrategy::FinishLive), and no
  // tokens are new.
  virtual void OnFinishEarly(const DecodeStrategy& strategy) = 0;
};

}  // namespace espalier
