// What groups of beams that avoid each other's tokens choose (diverse beams):
// one group after the other ranks its candidates, each with its score lowered
// by a penalty for every time that groups before it chose the token in this
// step; and goes on with the first of these that do not end.
//
// The rows of an answer are in order and each is best first, so a group's best
// are merged from the heads of its rows, and no more are looked at than its
// best and the lowered ones among them.
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "exec_request/step_plan.h"
#include "kernels/select/select.h"

namespace espalier {

// How often each token was chosen in this step.
using TokenChoices = std::unordered_map<TokenId, int>;

struct PenalisedCandidate {
  Candidate candidate;  // with the lowered score, and the row in its group
  int idx = 0;          // in the answer
};

// The best of a group, best first, at most group.num_candidates; ties to the
// lower row, then the lower token.
//   answer  candidates by row; each row's by falling score, ties to the lower
//           token
// REQUIRES: penalty >= 0.
std::vector<PenalisedCandidate> BestPenalised(std::span<const Candidate> answer,
                                              const RowRanking::Group& group,
                                              const TokenChoices& choices,
                                              double penalty);

// Of the answer to a selection of kRows, what its groups rank, by
// `selection.ranking`: all of it if that has no groups.
std::vector<Candidate> KeepChoosable(const PlanSelection& selection,
                                     std::vector<Candidate> answer);

}  // namespace espalier
