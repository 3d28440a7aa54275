// BestPenalised: the choice of diverse beams, which are groups of beams that
// avoid each other's tokens. The groups rank their candidates one after the
// other. A candidate's score is lowered by a penalty for each time that an
// earlier group chose its token in this step. A group continues with its first
// candidates that do not end.
//
// Rows of a result are in order, and each is best first. So a group's best
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
  Candidate candidate;  // penalised score; `beam` is the row in its group
  int idx = 0;          // in the result
};

// Returns the best candidates of a group, best first, at most
// group.num_candidates; ties to the lower row, then the lower token.
//   answer  candidates of the result by row; each row's by falling score, ties
//           to the lower token
// REQUIRES: penalty >= 0.
std::vector<PenalisedCandidate> BestPenalised(std::span<const Candidate> answer,
                                              const RowRanking::Group& group,
                                              const TokenChoices& choices,
                                              double penalty);

// Returns the candidates of a kRows result that `selection.ranking` ranks for
// its groups, or all candidates if it has no groups.
std::vector<Candidate> KeepChoosable(const PlanSelection& selection,
                                     std::vector<Candidate> answer);

}  // namespace espalier
