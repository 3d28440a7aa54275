// Expected result of a request that ends at its deadline: the sequences that it
// has alone after each of its steps.
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

// Describes why `result` is not the best of the request's sequences after
// `num_steps` steps alone; "" if it is. Each group of beams keeps its own best,
// so for groups the hypotheses only have to be among these sequences, best
// first. A step with drafts may be several steps alone, so the result of a
// request with drafts may be that of any later step. Alone, such a request may
// fail (`fails_alone`) when one of its samples has no possible token, which
// other samples have not waited for: each of their hypotheses then continues a
// live sequence of the last step alone.
std::string CheckBestSoFar(const GenerationParams& params, const Result& result,
                           const SearchStates& alone, bool fails_alone,
                           int num_steps);

}  // namespace espalier::testing
