// AnsweredSearch: a search whose rows choose separately (diverse and sampled
// beams), replayed from its results by a strategy of its own. The beams of each
// row, the ranks of their candidates and the output all follow from the results
// to the bit. So a run is right if
//
//   - its output is the one that its results lead to; and
//   - its results are right, up to the first step with different beams.
//
// The second needs another run of the same request for comparison: candidates
// of both agree within rounding, and a candidate of only one run ranks last
// there. If that holds, and the next beams differ, or their ranks do, then
// rounding has swapped candidates.
// other ranks, then rounding has turned the order of candidates around.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "beam/prepared_request.h"
#include "beam/strategy/decode_strategy.h"
#include "request/param_fields.h"
#include "tests/executor/answer_log.h"

namespace espalier::testing {

// Tokens generated, by rank.
using BeamTokens = std::vector<std::vector<TokenId>>;

class AnsweredSearch {
 public:
  // Both outlive it.
  AnsweredSearch(const PreparedRequest& request, const CandidateLists& steps);

  size_t num_steps() const { return steps_.size(); }
  // True if the strategy is done after all results.
  bool ended() const { return ended_; }
  const GenerationParams& params() const { return params_; }
  // REQUIRES: step < num_steps().
  const PlanSelection& selection(size_t step) const {
    return steps_[step].selection;
  }
  const BeamTokens& beams(size_t step) const { return steps_[step].beams; }
  const std::vector<Candidate>& candidates(size_t step) const {
    return answers_[step];
  }
  // Ranks of drawn candidates, [candidates]: the score with noise; for
  // stochastic beams shifted to the parent's sum.
  const std::vector<double>& sums(size_t step) const {
    return steps_[step].sums;
  }
  // The highest score with noise of a row's candidates; -inf of none.
  double MaximumOf(size_t step, int row) const {
    return steps_[step].maxima[row];
  }

  // Describes how `result` differs from the replayed search, bit for bit, else
  // "".
  std::string DifferenceFrom(const Result& result) const;

 private:
  struct Step {
    PlanSelection selection;
    BeamTokens beams;
    std::vector<double> maxima;  // [num_rows], of drawn beams
    std::vector<double> sums;
  };

  Step Describe(size_t step) const;
  void AddSums(const std::vector<Candidate>& candidates, Step* step) const;

  const GenerationParams& params_;
  const CandidateLists& answers_;
  const std::unique_ptr<DecodeStrategy> strategy_;
  std::vector<Step> steps_;
  bool ended_ = false;
};

// Effect of rounding on a score.
struct ScoreTolerance {
  double relative = 0;
  double least_score = 0;  // floor of the score it is relative to

  double Of(double score) const;
  bool Holds(double a, double b) const;
};

// Allowed differences between two results of a step.
struct StepTies {
  int num_others = 0;    // candidates of one run alone, that rank last there
  int num_filtered = 0;  // and those at the border of a row's filter
  int num_shifted = 0;   // rows with another normalization of scores
};

// Describes how the candidates of a step with equal beams differ by more than
// rounding and filters explain, else "".
//
// A filter (top_p and others) may keep a token in one run and not in the other.
// That is seen in no other row. It excuses that a candidate is in one run
// alone, if no candidate of its row that both have is less likely by more than
// rounding: a filter keeps the likeliest (but typical_p). Of stochastic beams,
// whose scores are of what was kept, it also shifts all scores of the row
// alike, by log 2 at most, as a token at the border is no likelier than those
// that stay.
std::string CompareCandidates(const AnsweredSearch& expected,
                              const AnsweredSearch& actual, size_t step,
                              const ScoreTolerance& tolerance, StepTies* ties);

}  // namespace espalier::testing
