// BestPenalised: the choice of diverse beams, which are groups of beams that
// avoid each other's tokens. Each group has a block of rows (RowBlock), and the
// blocks are ranked one after the other. A candidate's score is lowered by a
// penalty for each time that an earlier block chose its token in this step. A
// group continues with the first candidates of its block that do not end.
//
// Rows of a result are in order, and each is best first. So a block's best
// candidates are merged from the heads of its rows, and the merge reads only
// these and the penalised candidates among them.
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "exec_request/step_plan.h"
#include "kernels/select/select.h"

namespace espalier {

// Number of times that each token was chosen in this step.
using TokenChoices = std::unordered_map<TokenId, int>;

struct PenalisedCandidate {
  Candidate candidate;  // penalised score; `beam` is the row in its block
  int idx = 0;          // in the result
};

// Returns the best candidates of a block, best first, at most block.count; ties
// to the lower row, then the lower token.
//   answer  candidates of the result by row; each row's by falling score, ties
//           to the lower token
// REQUIRES: penalty >= 0.
std::vector<PenalisedCandidate> BestPenalised(std::span<const Candidate> answer,
                                              const RowBlock& block,
                                              const TokenChoices& choices,
                                              double penalty);

// Returns the candidates of a result of `selection` that `kept` keeps, in their
// order.
std::vector<Candidate> KeepChoosable(const PlanSelection& selection,
                                     const KeepEachBlock& kept,
                                     std::vector<Candidate> answer);

}  // namespace espalier
