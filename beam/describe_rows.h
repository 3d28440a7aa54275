// DescribeRows: the rows that the next step selects from: one row a live
// sequence, of any kind of sequence.
#pragma once

#include "beam/stopping_criteria.h"
#include "exec_request/step_plan.h"

namespace espalier {

// Sets num_rows, cum_log_probs and allowed of `*selection`.
//   sequences  by rank; each has `cum_log_prob`, and `progress` by `criteria`
template <typename Sequences>
void DescribeRows(const Sequences& sequences, const StoppingCriteria& criteria,
                  PlanSelection* selection) {
  selection->num_rows = 0;
  selection->cum_log_probs.clear();
  selection->allowed.clear();
  for (const auto& sequence : sequences) {
    ++selection->num_rows;
    selection->cum_log_probs.push_back(sequence.cum_log_prob);
    if (criteria.restricts()) {
      selection->allowed.push_back(*criteria.Next(sequence.progress));
    }
  }
}

}  // namespace espalier
