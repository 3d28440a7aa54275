#include "executor/cuda/batch/cuda_verify_rows.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace espalier {

void CudaVerifyRows::AddSequence(const Selection& selection, int i,
                                 CudaBatchArrays<HostArray>* batch) {
  const SelectionRow& first = selection.logits_rows[i];
  const std::vector<TokenId>& draft = selection.drafts[first.row];
  batch->verify_sequences.push_back(
      {.first_row = selection.first_logits_row + i,
       .first_draft_row = selection.has_draft_rows ? num_draft_rows() : -1,
       .first_draft = static_cast<int>(batch->verify_drafts.size()),
       .num_drafts = static_cast<int>(draft.size()),
       .first_token = selection.first_candidate + i,
       .first_beam = i,
       .sample = static_cast<uint32_t>(first.sample),
       .position = static_cast<uint32_t>(first.num_generated),
       .mode = VerifyMode::kRejection});
  batch->verify_drafts.insert(batch->verify_drafts.end(), draft.begin(),
                              draft.end());
  sequence_params_.push_back(selection.params);
  ++batch->verify_count[0];
}

void CudaVerifyRows::PlaceRows(int num_logits_rows, int num_draft_rows,
                               CudaBatchArrays<HostArray>* batch) const {
  if (batch->verify_count[0] == 0) return;
  const size_t num_rows = static_cast<size_t>(num_logits_rows) + num_draft_rows;
  batch->verify_row_sequences.assign(num_rows, -1);
  batch->verify_row_params.assign(num_rows, -1);
  batch->verify_row_addresses.assign(num_rows, 0);
  batch->verify_row_edits = batch->row_edits;  // none if none has any
  batch->verify_row_edits.resize(num_rows);
  for (int s = 0; s < batch->verify_count[0]; ++s) {
    CudaVerifySequence& sequence = batch->verify_sequences[s];
    if (sequence.first_draft_row >= 0)
      sequence.first_draft_row += num_logits_rows;
    const int num_targets = sequence.num_drafts + 1;
    std::fill_n(batch->verify_row_sequences.begin() + sequence.first_row,
                num_targets, s);
    std::fill_n(batch->verify_row_params.begin() + sequence.first_row,
                num_targets, sequence_params_[s]);
  }
  int row = num_logits_rows;
  for (const DraftRow& draft : draft_rows_) {
    batch->verify_row_sequences[row] = draft.sequence_idx;
    batch->verify_row_params[row] = sequence_params_[draft.sequence_idx];
    batch->verify_row_edits[row] = draft.edits;
    ++row;
  }
}

}  // namespace espalier
