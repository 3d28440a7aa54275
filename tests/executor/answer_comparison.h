// Compares two answers to a request, one computed beside other requests and one
// alone, where the model's logits are equal but for the rounding of float32.
//
// Rounding decides only between candidates that tie within it, so two runs are
// followed step by step, to the first step with different beams. If the best of
// all rows are taken, results are in order and show every tie. If rows choose
// separately (diverse and sampled beams), the strategy orders their candidates;
// each run is therefore replayed from its results (answered_search.h), and must
// reproduce its own output to the bit. A different rank, beam or score is then
// explained by results that agree within rounding, candidate by candidate.
//
//   near tie   a candidate is in one run alone, and ranks last within
//              rounding: drawn beams by score with noise, shifted where they
//              are stochastic; diverse ones by the lowered score in their
//              group. Or hypotheses are others though all answers agree.
//   late tie   of rows that choose by themselves: a step has other beams, or
//              has them at other ranks, though all answers before it agree. The
//              noise of a row is of its rank, so all may differ after it.
//              Of diverse beams, the first that is another has the score of
//              the one in its place; those after it may be lowered otherwise.
//              Else: beams tied in an earlier step, with nothing to see there
//              but their order; then other candidates may follow.
//   amplified  a stochastic beam's score is its log-probability with noise,
//              shifted to the parent's sum T by the highest one Z of its
//              siblings. Of a sibling just below Z the shift leaves
//              -log(exp(-T) + exp(-g) - exp(-Z)), whose error is that of Z and
//              g times exp(score - Z): any factor, with a chance of one in so
//              many. So no tolerance of scores holds; they have to be what
//              each run's answers lead to.
//   filtered   a filter of drawn beams (top_p and others) kept a token in one
//              run and not in the other. That excuses which candidates its row
//              has at the border of the filter and, of stochastic beams, one
//              shift of all scores of the row (answered_search.h); all else in
//              the step agrees. Other beams may follow. Of sampled beams, those
//              that both runs have in the end have the same sums.
//   samples    a sample whose draw is near the border of two tokens takes one
//              of them: by the sum of what all borders move, some per cent in a
//              few steps. So they are compared at the end: as many samples as
//              are allowed to have others in their place.
//   shifted    where thousands of tokens are kept, a thousand of them to a nat,
//              the last one that a filter keeps is another in a row out of a
//              hundred. That moves every border of tokens between the two by up
//              to half a token, for all samples that have the same text so far:
//              a third of them may take the next token that is kept.
//
// Without any of these, hypotheses, scores and log-probabilities are equal
// within the tolerance. Each exception is counted, and the counts are bounded.
#pragma once

#include <string>

#include "beam/prepared_request.h"
#include "request/request.h"
#include "tests/executor/answer_log.h"

namespace espalier::testing {

// One run of a request.
struct AnsweredRequest {
  CandidateLists steps;
  Result result;
};

struct AnswerCounts {
  int num_beams = 0;  // beam searches, greedy ones among them
  int num_near_ties = 0;
  int num_late_ties = 0;
  int num_filtered = 0;  // drawn beams with filters
  int num_filtered_ties = 0;
  int num_stochastic_scores = 0;  // per hypothesis
  int num_amplified = 0;
  int num_sampled = 0;  // requests
  int num_shifted = 0;  // sampled requests with a shift
  int num_samples = 0;  // in all other sampled requests
  int num_other_samples = 0;
  double most_other_samples = 0;  // share of a request of 100 or more

  void Print(const char* name) const;
  // Names the first count of one run that is above its bound, else "".
  std::string AboveBounds() const;
};

// Describes the first difference, else "".
std::string CompareAnswers(const PreparedRequest& request,
                           const AnsweredRequest& expected,
                           const AnsweredRequest& actual, AnswerCounts* counts);

}  // namespace espalier::testing
