// LogitsPlace: position of a row of logits in a selection, and its score edits.
#pragma once

#include <vector>

#include "exec_request/step_plan.h"

namespace espalier {

// The row of logits after the first `depth` drafted tokens of a row.
struct LogitsPlace {
  int row = 0;         // index among the selection's plan rows
  int depth = 0;       // 0 without drafts
  int logits_row = 0;  // index among the selection's rows of logits
};

// Returns the edits of a row of logits; the view is into `*storage` or `all`.
//   all  EditsOf(*selection.params)
ScoreEdits::View EditsAt(const PlanSelection& selection, const ScoreEdits& all,
                         const LogitsPlace& place, int vocab_size,
                         std::vector<TokenEdit>* storage);

}  // namespace espalier
