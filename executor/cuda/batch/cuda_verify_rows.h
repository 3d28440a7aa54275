// CudaVerifyRows: the drafts of a step's batch that are verified by rejection,
// with the draft model's logits if the drafts were sampled. A sequence of
// kernels/verify/cuda_verify.h is a row of the plan with its rows of logits:
// one for each drafted token and one after. Verification writes the candidates
// of these rows.
//
//   rows of logits  [ plain draws | sequence 0: 3 | sequence 1: 5 | padding ]
//   rows of drafts  [ sequence 0: 2 | sequence 1: 4 | padding ]
//
// Rows of drafts are numbered after all rows of logits that the step computes.
// The host copies its rows of drafts there before the step; rows that are on
// the device already are read in place (verify_row_addresses).
//
// Thread safety: a plain value.
#pragma once

#include <span>
#include <vector>

#include "base/ids.h"
#include "executor/cuda/batch/cuda_batch_arrays.h"
#include "executor/selection_rows.h"

namespace espalier {

struct CudaVerifyRows {
  // A selection, whose rows of logits are in the batch.
  struct Selection {
    std::span<const SelectionRow> logits_rows;
    std::span<const std::vector<TokenId>> drafts;  // by row
    bool has_draft_rows = false;
    bool has_filters = false;
    int first_logits_row = 0;
    int first_candidate = 0;
    int params = 0;  // index in CudaBatchArrays::params
  };
  // Adds the drafts of a selection. of_draft(i) returns the edits of the draft
  // row that the token after logits_rows[i] was sampled from.
  template <typename EditsOfDraft>
  void Add(const Selection& selection, const EditsOfDraft& of_draft,
           CudaBatchArrays<HostArray>* batch);

  // Writes the arrays by row: `num_logits_rows` rows, then `num_draft_rows`,
  // padding included.
  // REQUIRES: one call, after all rows of logits and their edits were added.
  void PlaceRows(int num_logits_rows, int num_draft_rows,
                 CudaBatchArrays<HostArray>* batch) const;

  // Rows of drafts so far, in the order of their selections.
  int num_draft_rows() const { return static_cast<int>(draft_rows_.size()); }

  bool has_filters = false;  // some selection has filters

 private:
  struct DraftRow {
    int sequence_idx = 0;
    CudaRowEdits edits;
  };
  void AddSequence(const Selection& selection, int i,
                   CudaBatchArrays<HostArray>* batch);

  std::vector<int> sequence_params_;
  std::vector<DraftRow> draft_rows_;
};

template <typename EditsOfDraft>
void CudaVerifyRows::Add(const Selection& selection,
                         const EditsOfDraft& of_draft,
                         CudaBatchArrays<HostArray>* batch) {
  has_filters |= selection.has_filters;
  for (int i = 0; i < std::ssize(selection.logits_rows); ++i) {
    const SelectionRow& row = selection.logits_rows[i];
    const std::vector<TokenId>& draft = selection.drafts[row.row];
    if (row.draft_idx == 0) AddSequence(selection, i, batch);
    const bool has_row =
        selection.has_draft_rows && row.draft_idx < std::ssize(draft);
    if (!has_row) continue;
    draft_rows_.push_back({batch->verify_count[0] - 1, of_draft(i)});
  }
}

}  // namespace espalier
