// DescribeRows: the rows that the next step selects from, one for each live
// sequence, for any type of sequence.
#pragma once

#include <cstddef>

#include "beam/strategy/assign_each.h"
#include "beam/strategy/stopping_criteria.h"
#include "exec_request/step_plan.h"

namespace espalier {

// Sets num_rows and cum_log_probs of `*selection`; with a constraint places if
// its params have the constraint's tables, else allowed.
//   sequence_of  returns the sequence of a row, by rank, with `cum_log_prob`,
//                and `progress` in `criteria`
template <typename SequenceOf>
void DescribeRows(size_t num_rows, const SequenceOf& sequence_of,
                  const StoppingCriteria& criteria, PlanSelection* selection) {
  selection->num_rows = static_cast<int>(num_rows);
  AssignEach(
      num_rows, [&](size_t row) { return sequence_of(row).cum_log_prob; },
      &selection->cum_log_probs);
  if (!criteria.restricts()) return;
  selection->allowed.clear();
  selection->places.clear();
  for (size_t row = 0; row < num_rows; ++row) {
    const StoppingCriteria::Progress& progress = sequence_of(row).progress;
    if (selection->params->constraint.has_value()) {
      selection->places.push_back(StoppingCriteria::PlaceOf(progress));
    } else {
      selection->allowed.push_back(criteria.LegalTokens(progress).tokens);
    }
  }
}

}  // namespace espalier
