// Edited logits on the device (kernels/logits/edited_logits.h), for edits that
// only ban: rows of logits after their bans and the rule of timestamps, in
// place, before they are selected from. A selection that reads them normalises
// over what is left. It reads the bans again, which changes nothing: a ban acts
// alike on a logit and on a log-probability.
//
// The state of a row follows from its history, which the device keeps beside
// the pages (cuda_row_history.h), so nothing of it is stored and beams
// inherit it with their pages.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "kernels/logits/cuda_row_edits.h"
#include "kernels/logits/timestamp_rule.h"
#include "kernels/resident/cuda_row_history.h"

namespace espalier {

struct CudaEditedRow {
  int num_prompt_tokens = -1;  // later ones were generated; -1: no edited row
  int rule = -1;               // index of its rule; -1: its bans alone
};

struct CudaEditedRowsInputs {
  CudaRowHistories histories;
  // Device memory.
  float* logits = nullptr;                  // [num_rows, vocab_size]
  const CudaEditedRow* rows = nullptr;      // [num_rows]
  const TimestampRule* rules = nullptr;     // indexed by rows
  const CudaRowEdits* row_edits = nullptr;  // [num_rows]; null: no edits
  const TokenEdit* edits = nullptr;  // those that do not ban are left out
};

// Enqueues on `stream` and returns; never allocates, may be captured. Allow
// lists and token masks are not applied. Dead rows keep their logits.
// REQUIRES: the rules' tokens, but last_first_time, in [0, vocab_size).
// Errors: kInvalidArgument if a shape is impossible; kInternal if the launch is
// refused.
absl::Status CudaEditRows(const CudaEditedRowsInputs& inputs,
                          cudaStream_t stream);

}  // namespace espalier
