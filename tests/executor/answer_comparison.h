// Whether a request was answered alike twice, beside other requests and alone,
// when the model's logits are the same but for the rounding of float32.
//
// Rounding decides only between candidates that tie within it, so two runs are
// followed step by step, to the first step in which one has candidates that the
// other has not:
//
//   near tie   there, the i-th best scores are equal within the tolerance, for
//              every i: what changed places tied. Of drawn beams, the sums
//              with noise that they rank by.
//   late tie   beams tied in an earlier step, with nothing to see there but
//              their order: then other candidates may follow. Where rows choose
//              by themselves (diverse and drawn beams) the host orders them,
//              and that is not seen; then the candidates of two beams of eight
//              or more may be others.
//   filtered   a filter of drawn beams (top_p and others) kept a token in one
//              run and not in the other: anything may follow.
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
  int num_sampled = 0;  // requests
  int num_shifted = 0;  // of them
  int num_samples = 0;  // of the others
  int num_other_samples = 0;
  double most_other_samples = 0;  // share of a request of 100 or more

  void Print(const char* name) const;
  // Of one run: what is above its bound, else "".
  std::string AboveBounds() const;
};

// What differs, else "".
std::string CompareAnswers(const GenerationParams& params,
                           const AnsweredRequest& expected,
                           const AnsweredRequest& actual, AnswerCounts* counts);

}  // namespace espalier::testing
