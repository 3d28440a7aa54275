// What the simulator knows of a request that ends at its deadline: the
// sequences that it has alone after each of its steps.
#pragma once

#include <string>
#include <vector>

#include "beam/strategy/search_watcher.h"
#include "request/request.h"

namespace espalier::testing {

// After each step the sequences of the search, live ones as "deadline".
using SearchStates = std::vector<std::vector<Hypothesis>>;

class StatesWatcher final : public SearchWatcher {
 public:
  explicit StatesWatcher(SearchStates* states) : states_(*states) {}
  void OnStep(const DecodeStrategy& strategy, const TokenLogProbs*) override;
  void OnFinishEarly(const DecodeStrategy&) override {}

 private:
  SearchStates& states_;
};

class StepCounter final : public SearchWatcher {
 public:
  explicit StepCounter(int* num_steps) : num_steps_(*num_steps) {}
  void OnStep(const DecodeStrategy&, const TokenLogProbs*) override {
    ++num_steps_;
  }
  void OnFinishEarly(const DecodeStrategy&) override {}

 private:
  int& num_steps_;
};

// Why `result` is not the best of what the request has alone after so many
// steps; "" if it is. Of groups of beams, each of which keeps its own best,
// only that it is of these, best first; and of a request that speculates, whose
// steps may each be several of those alone, that it is of some step's. Alone
// such a request may fail (`fails_alone`) when one of its samples has no token,
// which others have not waited for: each of these goes on from a sequence of
// its own that lives after the last step alone.
std::string CheckBestSoFar(const GenerationParams& params, const Result& result,
                           const SearchStates& alone, bool fails_alone,
                           int num_steps);

}  // namespace espalier::testing
