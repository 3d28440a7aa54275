// DescribeRows: the rows that the next step selects from, one for each live
// sequence, for any type of sequence.
#pragma once

#include <cstddef>

#include "beam/strategy/assign_each.h"
#include "beam/strategy/stopping_criteria.h"
#include "exec_request/step_plan.h"

namespace espalier {

// Sets num_rows, cum_log_probs, allowed and places of `*selection`.
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
  for (size_t row = 0; row < num_rows; ++row) {
    selection->allowed.push_back(
        criteria.LegalTokens(sequence_of(row).progress).tokens);
  }
  if (!criteria.has_tables()) return;
  selection->places.clear();
  for (size_t row = 0; row < num_rows; ++row) {
    selection->places.push_back(
        StoppingCriteria::PlaceOf(sequence_of(row).progress));
  }
}

}  // namespace espalier
