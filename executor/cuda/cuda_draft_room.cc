#include "executor/cuda/cuda_draft_room.h"

#include <algorithm>

#include "executor/selection_lines.h"

namespace espalier {

CudaDraftRoom::CudaDraftRoom(const StepPlan& plan, const CudaStepLimits& limits,
                             const CudaInputBatch& image)
    : vocab_size_(image.shape.vocab_size) {
  int64_t num_scored = 0;
  for (const PlanPromptLogprobs& scoring : plan.scorings) {
    num_scored += std::ssize(scoring.tokens);
  }
  // A line is a draw, and has a candidate.
  left_.num_lines =
      std::min<int64_t>({limits.max_rows - image.num_logits_rows() - num_scored,
                         limits.max_rows - image.num_draws(),
                         limits.max_candidates - image.num_candidates});
  left_.num_edits =
      limits.max_edits - std::ssize(image.edits) - image.num_device_edits;
  for (const PlanSelection& selection : plan.selections) {
    if (!HasDifferentLines(selection)) continue;
    const Needs needs = NeedsOf(selection, false);
    left_.num_lines -= needs.num_lines;
    left_.num_edits -= needs.num_edits;
  }
}

bool CudaDraftRoom::Take(const PlanSelection& selection) {
  const Needs needs = NeedsOf(selection, true);
  if (needs.num_lines > left_.num_lines || needs.num_edits > left_.num_edits) {
    return false;
  }
  left_.num_lines -= needs.num_lines;
  left_.num_edits -= needs.num_edits;
  return true;
}

CudaDraftRoom::Needs CudaDraftRoom::NeedsOf(const PlanSelection& selection,
                                            bool of_drafts) const {
  Needs needs;
  for (const SelectionLine& line : LinesOf(selection)) {
    if ((line.draft_idx > 0) != of_drafts) continue;
    ++needs.num_lines;
    needs.num_edits += MaxEditsOf(selection, line, vocab_size_);
  }
  return needs;
}

}  // namespace espalier
