#include "executor/cuda/batch/cuda_draft_room.h"

#include <algorithm>

#include "executor/selection_rows.h"

namespace espalier {
namespace {

// MaxEditsOf, where long lists are masks and the row has edits of processors.
int64_t MaxEditsOnDevice(const PlanSelection& selection,
                         const SelectionRow& logits_row, int vocab_size) {
  if (logits_row.allowed != nullptr &&
      std::ssize(*logits_row.allowed) <= kMaxListEdits) {
    return std::ssize(*logits_row.allowed);
  }
  return MaxEditsOf(selection, std::ssize(logits_row.history()), vocab_size);
}

}  // namespace

CudaDraftRoom::CudaDraftRoom(const StepPlan& plan, const CudaStepLimits& limits,
                             const CudaInputBatch& batch)
    : vocab_size_(batch.shape.vocab_size) {
  int64_t num_scored = 0;
  for (const PlanPromptLogprobs& scoring : plan.scorings) {
    num_scored += std::ssize(scoring.tokens);
  }
  left_ = {
      .num_logits_rows = limits.max_rows - batch.num_logits_rows() - num_scored,
      .num_draws = limits.max_rows - batch.num_draws(),
      .num_candidates = limits.max_candidates - batch.num_candidates,
      .num_edits =
          limits.max_edits - std::ssize(batch.edits) - batch.num_device_edits};
  for (const PlanSelection& selection : plan.selections) {
    if (HasDifferentRows(selection)) Subtract(NeedsOf(selection, false));
  }
}

bool CudaDraftRoom::Take(const PlanSelection& selection) {
  const Needs needs = NeedsOf(selection, true);
  if (!Has(needs)) return false;
  Subtract(needs);
  return true;
}

bool CudaDraftRoom::Has(const Needs& needs) const {
  return needs.num_logits_rows <= left_.num_logits_rows &&
         needs.num_draws <= left_.num_draws &&
         needs.num_candidates <= left_.num_candidates &&
         needs.num_edits <= left_.num_edits;
}

void CudaDraftRoom::Subtract(const Needs& needs) {
  left_.num_logits_rows -= needs.num_logits_rows;
  left_.num_draws -= needs.num_draws;
  left_.num_candidates -= needs.num_candidates;
  left_.num_edits -= needs.num_edits;
}

CudaDraftRoom::Needs CudaDraftRoom::NeedsOf(const PlanSelection& selection,
                                            bool of_drafts) const {
  if (selection.has_paths()) return NeedsOfPaths(selection, of_drafts);
  if (of_drafts && HasDraftRows(selection)) return NeedsOfDrawn(selection);
  Needs needs;
  for (const SelectionRow& logits_row : SelectionRowsOf(selection)) {
    if ((logits_row.draft_idx > 0) != of_drafts) continue;
    ++needs.num_logits_rows;
    ++needs.num_draws;
    ++needs.num_candidates;
    needs.num_edits += MaxEditsOnDevice(selection, logits_row, vocab_size_);
  }
  return needs;
}

CudaDraftRoom::Needs CudaDraftRoom::NeedsOfPaths(const PlanSelection& selection,
                                                 bool of_drafts) const {
  Needs plain = {.num_logits_rows = selection.num_rows,
                 .num_candidates = selection.num_candidates()};
  Needs all;
  int num_beams = 0;
  const PathRows& paths = selection.as_beams()->paths;
  for (size_t path = 0; path < paths.ranks.size(); ++path) {
    const int rank = paths.ranks[path];
    const int64_t num_history =
        selection.histories.empty() ? 0 : std::ssize(selection.histories[rank]);
    const auto num_edits_after = [&](int64_t num_drafted) {
      return MaxEditsOf(selection, num_history + num_drafted, vocab_size_);
    };
    // A row of logits after the beam, and one after each drafted token.
    const int64_t num_drafts = std::ssize(paths.drafts[path]);
    all.num_logits_rows += 1 + num_drafts;
    all.num_candidates += (1 + num_drafts) * selection.num_candidates();
    for (int64_t i = 0; i <= num_drafts; ++i) {
      all.num_edits += num_edits_after(i);
    }
    if (rank < num_beams) continue;  // not its first path
    ++num_beams;
    plain.num_edits += num_edits_after(0);
  }
  if (!of_drafts) return plain;
  return {.num_logits_rows = all.num_logits_rows - plain.num_logits_rows,
          .num_candidates = all.num_candidates - plain.num_candidates,
          .num_edits = all.num_edits - plain.num_edits};
}

CudaDraftRoom::Needs CudaDraftRoom::NeedsOfDrawn(
    const PlanSelection& selection) const {
  const SampleDrafts& drafts = selection.as_draws()->drafts;
  Needs needs;
  for (int row = 0; row < selection.num_rows; ++row) {
    const std::vector<TokenId>& draft = drafts.tokens[row];
    if (draft.empty()) continue;
    const int64_t count =
        std::max<int64_t>(std::ssize(draft), drafts.max_tokens);
    const int64_t num_history =
        selection.histories.empty()
            ? 0
            : std::ssize(selection.histories[row]) + count;
    // Each token needs the row that verifies it and the row that it was sampled
    // from.
    needs.num_logits_rows += 2 * count;
    needs.num_draws += 2 * count;
    needs.num_candidates += 2 * count;
    needs.num_edits +=
        2 * count * MaxEditsOf(selection, num_history, vocab_size_);
  }
  // Short lists of allowed tokens are edits of the rows that verify.
  for (const SelectionRow& logits_row : SelectionRowsOf(selection)) {
    if (logits_row.draft_idx == 0 || logits_row.allowed == nullptr) continue;
    needs.num_edits += MaxEditsOnDevice(selection, logits_row, vocab_size_);
  }
  return needs;
}

}  // namespace espalier
