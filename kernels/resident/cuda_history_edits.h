// Score edits that depend on a row's history, on the device: the lists of
// CollectEdits (kernels/logits/score_processors.h), to the bit, so that groups
// whose score processors read the history can be scheduled asynchronously. One
// launch before the forward pass, and only in steps with such rows.
//
// The edits of a row are those of all rows with its params, and penalties and
// bans that follow from its history (cuda_row_history.h), merged by token: a
// function of its history and its params alone.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "base/cuda.h"
#include "kernels/logits/score_processors.h"
#include "kernels/resident/cuda_row_history.h"
#include "kernels/select/cuda_select.h"

namespace espalier {

// The score processors of a request's rows: ScoreProcessors for the device.
struct CudaEditParams {
  // Edits that do not depend on the history, from CollectEdits without one:
  // edits[common_begin, common_end), sorted by token, each once.
  int common_begin = 0;
  int common_end = 0;
  // Bad words of several tokens: edits[words_begin, words_end), one token per
  // entry; the last of each word is marked as banned.
  int words_begin = 0;
  int words_end = 0;
  int num_prompt_tokens = 0;  // later tokens were generated
  float repetition_penalty = 1.0f;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  int no_repeat_ngram_size = 0;
  int is_allow_list = 0;  // 1: tokens outside the common edits are banned
};

// A row, and the start of its list.
struct CudaEditRow {
  int params = -1;  // -1: CudaCollectEdits skips the row
  int begin = 0;
};

struct CudaHistoryInputs {
  CudaRowHistories histories;
  // Device memory.
  const CudaEditRow* rows = nullptr;       // [num_rows]
  const CudaEditParams* params = nullptr;  // indexed by rows
};

// Prepares the kernel. Call once per process and device, before the first
// launch.
// Errors: kInternal if the device refuses.
absl::Status PrepareCudaCollectEdits();

// Writes the list of every row that has params from its `begin` on, and its
// range into row_edits. The list of a dead row is empty. Other rows are not
// changed. Enqueues on `stream` and returns; never allocates, may be captured.
//   row_edits  [num_rows]
//   edits      the ranges of params and rows; rows do not overlap
// REQUIRES: PrepareCudaCollectEdits was called; room for MaxEdits() of a row's
// tokens from `begin` on; logits_tokens of rows that have params are valid.
// Errors: kInvalidArgument if a shape is impossible; kInternal if the launch is
// refused.
absl::Status CudaCollectEdits(const CudaHistoryInputs& inputs,
                              CudaRowEdits* row_edits, TokenEdit* edits,
                              cudaStream_t stream);

}  // namespace espalier
