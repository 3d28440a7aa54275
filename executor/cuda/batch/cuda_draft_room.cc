#include "executor/cuda/batch/cuda_draft_room.h"

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
  if (of_drafts && HasDraftRows(selection)) return NeedsOfDrawn(selection);
  Needs needs;
  for (const SelectionRow& logits_row : SelectionRowsOf(selection)) {
    if ((logits_row.draft_idx > 0) != of_drafts) continue;
    ++needs.num_logits_rows;
    needs.num_edits += MaxEditsOf(selection, logits_row, vocab_size_);
  }
  return needs;
}

CudaDraftRoom::Needs CudaDraftRoom::NeedsOfDrawn(
    const PlanSelection& selection) const {
  Needs needs;
  for (int row = 0; row < selection.num_rows; ++row) {
    const std::vector<TokenId>& draft = selection.drafts[row];
    if (draft.empty()) continue;
    const int64_t count =
        std::max<int64_t>(std::ssize(draft), selection.max_draft_tokens);
    const int64_t num_history =
        selection.histories.empty()
            ? 0
            : std::ssize(selection.histories[row]) + count;
    // Of each token: the row that verifies it, and the one that it was drawn
    // from.
    needs.num_logits_rows += 2 * count;
    needs.num_edits +=
        2 * count * MaxEditsOf(selection, num_history, vocab_size_);
  }
  // Lists of tokens that alone may follow are edits of the rows that verify.
  for (const SelectionRow& logits_row : SelectionRowsOf(selection)) {
    if (logits_row.draft_idx == 0 || logits_row.allowed == nullptr) continue;
    needs.num_edits += MaxEditsOf(selection, logits_row, vocab_size_);
  }
  return needs;
}

}  // namespace espalier
