// Where a row of logits of a selection stands, and what is done to its scores.
#pragma once

#include <vector>

#include "exec_request/step_plan.h"

namespace espalier {

// After the first `depth` drafted tokens of a row.
struct LogitsPlace {
  int row = 0;         // of the selection's in the plan
  int depth = 0;       // 0 without drafts
  int logits_row = 0;  // of the selection's
};

// The edits there; of `*storage`, or of `all`.
//   all  EditsOf(*selection.params)
ScoreEdits::View EditsAt(const PlanSelection& selection, const ScoreEdits& all,
                         const LogitsPlace& place, int vocab_size,
                         std::vector<TokenEdit>* storage);

}  // namespace espalier
