// LogitsPlace: position of a row of logits in a selection, and the row as the
// selection reads it.
#pragma once

#include <span>
#include <vector>

#include "exec_request/step_plan.h"

namespace espalier {

// The row of logits after the first `depth` drafted tokens of a row.
struct LogitsPlace {
  int row = 0;         // index among the selection's plan rows
  int depth = 0;       // 0 without drafts
  int logits_row = 0;  // index among the selection's rows of logits
};

// A row of logits, and the edits that it lacks.
struct RowView {
  std::span<const float> logits;  // [vocab_size]
  ScoreEdits::View edits;
};

// Returns a row as the selection reads it. If log-probabilities are those after
// edits, the row has them already (edited_logits.h). Points into `logits`,
// `*storage` and `all`, or to memory of the thread that its next call reuses.
//   all     EditsOf(*selection.params)
//   logits  [vocab_size]  of the place
RowView RowAt(const PlanSelection& selection, const ScoreEdits& all,
              const LogitsPlace& place, std::span<const float> logits,
              std::vector<TokenEdit>* storage);

// True if samples' log-probabilities are those after edits.
bool RenormalizesDraws(const PlanSelection& selection);

}  // namespace espalier
