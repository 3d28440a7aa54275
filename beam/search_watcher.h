// SearchWatcher: is called after each step of one request, and when it ends
// early, on its strand.
#pragma once

#include "beam/decode_strategy.h"

namespace espalier {

class SearchWatcher {
 public:
  virtual ~SearchWatcher() = default;

  // `strategy` has taken a step's answer; it may be done.
  virtual void OnStep(const DecodeStrategy& strategy) = 0;

  // The search was ended between two steps (DecodeStrategy::FinishLive).
  virtual void OnFinishEarly(const DecodeStrategy& strategy) = 0;
};

}  // namespace espalier
