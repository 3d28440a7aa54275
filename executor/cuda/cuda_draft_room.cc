#include "executor/cuda/cuda_draft_room.h"

#include <algorithm>

#include "executor/selection_rows.h"

namespace espalier {

CudaDraftRoom::CudaDraftRoom(const StepPlan& plan, const CudaStepLimits& limits,
                             const CudaInputBatch& batch)
    : vocab_size_(batch.shape.vocab_size) {
  int64_t num_scored = 0;
  for (const PlanPromptLogprobs& scoring : plan.scorings) {
    num_scored += std::ssize(scoring.tokens);
  }
  // A row of logits is a draw, and has a candidate.
  left_.num_logits_rows =
      std::min<int64_t>({limits.max_rows - batch.num_logits_rows() - num_scored,
                         limits.max_rows - batch.num_draws(),
                         limits.max_candidates - batch.num_candidates});
  left_.num_edits =
      limits.max_edits - std::ssize(batch.edits) - batch.num_device_edits;
  for (const PlanSelection& selection : plan.selections) {
    if (!HasDifferentRows(selection)) continue;
    const Needs needs = NeedsOf(selection, false);
    left_.num_logits_rows -= needs.num_logits_rows;
    left_.num_edits -= needs.num_edits;
  }
}

bool CudaDraftRoom::Take(const PlanSelection& selection) {
  const Needs needs = NeedsOf(selection, true);
  if (needs.num_logits_rows > left_.num_logits_rows ||
      needs.num_edits > left_.num_edits) {
    return false;
  }
  left_.num_logits_rows -= needs.num_logits_rows;
  left_.num_edits -= needs.num_edits;
  return true;
}

CudaDraftRoom::Needs CudaDraftRoom::NeedsOf(const PlanSelection& selection,
                                            bool of_drafts) const {
  Needs needs;
  const bool has_rows = HasDraftRows(selection);
  for (const SelectionRow& logits_row : SelectionRowsOf(selection)) {
    const bool is_drafted =
        has_rows &&
        logits_row.draft_idx < std::ssize(selection.drafts[logits_row.row]);
    if (of_drafts && is_drafted) {
      // The row that the drafted token was drawn from.
      ++needs.num_logits_rows;
      if (logits_row.allowed != nullptr) {
        SelectionRow unrestricted = logits_row;
        unrestricted.allowed = nullptr;
        needs.num_edits += MaxEditsOf(selection, unrestricted, vocab_size_);
      }
    }
    if ((logits_row.draft_idx > 0) != of_drafts) continue;
    ++needs.num_logits_rows;
    needs.num_edits += MaxEditsOf(selection, logits_row, vocab_size_);
  }
  return needs;
}

}  // namespace espalier
