#include "executor/cuda/step/cuda_step_drafts.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "executor/selection_rows.h"

namespace espalier {
namespace {

// Adds the logits that drafts were sampled from. `first_row` counts from the
// first row of drafts.
void AddDraftRows(const SampleDrafts& drafts, int first_row, int vocab_size,
                  CudaStep* step) {
  for (size_t row = 0; row < drafts.tokens.size(); ++row) {
    const int num_drafts = static_cast<int>(drafts.tokens[row].size());
    if (num_drafts == 0) continue;
    step->draft_rows.push_back(
        {drafts.logits[row].First(size_t(num_drafts) * vocab_size), first_row});
    first_row += num_drafts;
  }
}

// Returns the batch index of the row's token number `num_before` among its
// tokens with rows of logits.
int TokenOf(const CudaDifferentRows& rows, int row_of_selection,
            int num_before) {
  const int row_idx = rows.rows[row_of_selection];
  const PlanRow& row = rows.plan->rows[row_idx];
  return rows.first_tokens[row_idx] + row.num_tokens - row.num_logits +
         num_before;
}

// Index of the selection's first entry in some arrays.
struct Places {
  int draft = -1;            // in verify_drafts; -1: not verified by rejection
  int verify_sequence = -1;  // in verify_sequences; -1: likewise
  int prompt_draw = 0;
  int candidate = 0;
};

// Adds the selection's parts that the device fills in: drafts that are still
// being sampled, and starts of rows that depend on a verification.
void AddUnknown(const CudaDifferentRows& rows, Places next, CudaStep* step) {
  const SampleDrafts& drafts = rows.selection->as_draws()->drafts;
  for (int rank = 0; rank < rows.selection->num_rows; ++rank) {
    const int num_drafts = drafts.empty() ? 0 : std::ssize(drafts.tokens[rank]);
    const int num_verified = rows.verifies ? num_drafts : 0;
    if (!drafts.pending.empty() && !drafts.pending[rank].empty()) {
      step->placed_drafts.push_back({.draft = drafts.pending[rank],
                                     .first_token = TokenOf(rows, rank, 1),
                                     .first_draft = next.draft,
                                     .first_candidate = next.candidate,
                                     .num_verified = num_verified});
    }
    if (!drafts.verified_before.empty()) {
      step->unread_rows.push_back({.before = drafts.verified_before[rank],
                                   .first_token = TokenOf(rows, rank, 0),
                                   .num_tokens = 1 + num_drafts,
                                   .first_draw = next.prompt_draw,
                                   .num_draws = 1 + num_verified,
                                   .verify_sequence = next.verify_sequence});
    }
    if (next.draft >= 0) {
      next.draft += num_drafts;
      ++next.verify_sequence;
    }
    next.prompt_draw += 1 + num_verified;
    next.candidate += 1 + num_verified;
  }
}

// Adds a step of the beams without their draft paths: one joint selection from
// the rows of logits after each beam's last token.
void AddPlainBeams(const CudaDifferentRows& rows, CudaInputBatch* batch,
                   CudaStep::Answer* answer) {
  answer->has_unverified_drafts = true;
  const std::vector<int>& ranks = rows.selection->as_beams()->paths.ranks;
  std::vector<int> tokens;
  for (int path = 0; path < std::ssize(ranks); ++path) {
    if (ranks[path] < std::ssize(tokens)) continue;
    tokens.push_back(TokenOf(rows, path, 0));
  }
  answer->parts = batch->AddPromptLogitsRows(*rows.group, rows.request, tokens,
                                             rows.selection->cum_log_probs);
}

}  // namespace

void AddDifferentRows(const CudaDifferentRows& rows, CudaInputBatch* batch,
                      CudaStep* step, CudaStep::Answer* answer) {
  const PlanSelection& selection = *rows.selection;
  const bool are_paths = selection.has_paths();
  if (are_paths && !rows.verifies) return AddPlainBeams(rows, batch, answer);
  (are_paths ? answer->paths : answer->runs) = &selection;
  answer->logits_rows = SelectionRowsOf(selection, rows.verifies);
  std::vector<int> tokens;
  for (const SelectionRow& row : answer->logits_rows) {
    tokens.push_back(TokenOf(rows, row.row, row.draft_idx));
  }
  CudaGroupRequest request = rows.request;
  request.logits_rows = answer->logits_rows;
  const bool rejects = rows.verifies && IsByRejection(selection);
  Places places = {.prompt_draw = static_cast<int>(batch->prompt_draws.size())};
  if (rejects) {
    places.draft = static_cast<int>(batch->verify_drafts.size());
    places.verify_sequence = batch->verify_count[0];
    const SampleDrafts& drafts = selection.as_draws()->drafts;
    request.drafts = drafts.tokens;
    request.has_draft_rows = HasDraftRows(selection);
    if (request.has_draft_rows) {
      AddDraftRows(drafts, batch->verified.num_draft_rows(),
                   batch->shape.vocab_size, step);
    }
  }
  // With sums of zero, a candidate's sum is the token's log-probability.
  const std::vector<float> zeros(tokens.size());
  answer->parts =
      batch->AddPromptLogitsRows(*rows.group, request, tokens, zeros);
  if (are_paths) return;
  places.candidate = answer->parts.front().first_candidate;
  AddUnknown(rows, places, step);
}

int64_t NumDraftRows(const StepPlan& plan) {
  int64_t count = 0;
  for (const PlanSelection& selection : plan.selections) {
    if (!HasDraftRows(selection)) continue;
    for (const auto& draft : selection.drafts()) count += std::ssize(draft);
  }
  return count;
}

void PlaceDraftRows(const CudaStepLimits& limits, int ordinal,
                    CudaInputBatch* batch, CudaStep* step) {
  const int first_row = batch->num_logits_rows();
  const int num_rows = batch->verified.num_draft_rows();
  batch->PlaceDraftRows(
      step->is_replayable
          ? PaddedDraftRows(num_rows, limits.max_rows - first_row)
          : num_rows);
  const size_t vocab_size = batch->shape.vocab_size;
  for (CudaStep::DraftRows& rows : step->draft_rows) {
    rows.first_row += first_row;
    if (rows.logits.device() != ordinal) continue;
    for (size_t i = 0; i * vocab_size < rows.logits.size(); ++i) {
      batch->verify_row_addresses[rows.first_row + i] =
          reinterpret_cast<uintptr_t>(rows.logits.data() + i * vocab_size);
    }
  }
}

}  // namespace espalier
