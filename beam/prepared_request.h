// PreparedRequest: a request as a group takes it, with what may take long to
// make of one: of a hundred thousand allowed sequences it is tens of
// milliseconds. So it is made where the request comes from, and the strand,
// where everybody waits, only moves it. (The automaton of stop strings the
// group makes itself, on the strand: of the 4 KiB that they may have, a
// millisecond.)
//
// Thread rule: a value; what it points to is constant.
#pragma once

#include <memory>

#include "beam/allowed_sequences.h"
#include "exec_request/request.h"
#include "exec_request/step_plan.h"

namespace espalier {

struct PreparedRequest {
  // `from` has passed ValidateRequest, and CheckStops (finish_rule.h) with the
  // tokenizer of its group. Not explicit: it is the same request.
  PreparedRequest(Request from);  // NOLINT(google-explicit-constructor)

  // Its params.allowed_sequences have become `allowed`, and are empty.
  Request request;
  std::shared_ptr<const AllowedSequences> allowed;  // null: all
  std::shared_ptr<const SelectionRule> rule;        // keeps `allowed` alive
};

// Edits of scores that the rows of its group have together at most, in any
// step, as StepLimits::max_score_edits counts them.
int64_t WorstCaseEdits(const PreparedRequest& prepared, int vocab_size);

// Candidates that a step's answer has at most: of all rows together where they
// compete, of each row where the strategy ranks them.
int64_t MaxCandidates(const PreparedRequest& prepared, int vocab_size);

}  // namespace espalier
