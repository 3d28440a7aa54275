// The edits that a row's history asks for, on the device: what CollectEdits
// (kernels/logits/score_processors.h) does on the host, with the same lists to
// the bit, so that groups whose score processors read the history run ahead
// . One launch before the forward pass, and only in steps that have
// such rows.
//
// A history is where its keys and values are: `page_tokens` has a word for
// every place in every page, so it is shared, and moves between beams, as the
// pages do. CudaPrepareInputs writes what beams feed, the host what prompts
// feed, and CudaCopyBeamTails copies it along.
//
//   history of a row   token at its table's places 0, 1, ... its position
//   its edits          those that hold for all rows of its params, and
//   penalties
//                      and bans that follow from the history, merged by token
//
// A row's list is a function of its history and its params alone.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "base/cuda.h"
#include "kernels/logits/score_processors.h"
#include "kernels/select/cuda_select.h"

namespace espalier {

// How the edits of a request's rows are made: ScoreProcessors for the device.
struct CudaEditParams {
  // Edits that hold whatever the history, as CollectEdits gives them without
  // one: edits[common_begin, common_end), sorted by token, each once.
  int common_begin = 0;
  int common_end = 0;
  // Bad words of several tokens: edits[words_begin, words_end), a token an
  // entry; the last of each word is marked as banned.
  int words_begin = 0;
  int words_end = 0;
  int num_prompt_tokens = 0;  // what comes after was generated
  float repetition_penalty = 1.0f;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  int no_repeat_ngram_size = 0;
  int is_allow_list = 0;  // whether tokens outside the common edits are banned
};

// A row, and where its list begins.
struct CudaEditRow {
  int params = -1;  // -1: the row's edits are not made here
  int begin = 0;
};

struct CudaHistoryInputs {
  // Host values.
  int num_rows = 0;  // a bound, as captured
  int vocab_size = 0;
  int table_stride = 0;
  int page_size = 1;

  // Device memory.
  const CudaEditRow* rows = nullptr;       // [num_rows]
  const CudaEditParams* params = nullptr;  // what rows point into
  const float* cum_log_probs = nullptr;    // [num_rows] nats; -inf: dead
  const int* logits_tokens = nullptr;      // [num_rows]  the row's token
  const int* positions = nullptr;          // by token
  const int* token_tables = nullptr;       // by token
  const int* tables = nullptr;             // [tables, table_stride] page ids
  const int* page_tokens = nullptr;        // [pages, page_size]
};

// Readies the kernel: once a process and device, before the first call below.
// Errors: kInternal if the device refuses.
absl::Status PrepareCudaCollectEdits();

// Writes the list of every row that has params from its `begin` on, and where
// it is into row_edits; of a dead row the list is empty. Other rows' are left
// as they are. Enqueues on `stream` and returns; never allocates, may be
// captured.
//   row_edits  [num_rows]
//   edits      params' and rows' parts of it; no two rows share room
// REQUIRES: PrepareCudaCollectEdits was called; room for MaxEdits() of a row's
// tokens from `begin` on; logits_tokens of rows that have params are valid.
// Errors: kInvalidArgument if a shape is impossible; kInternal if the launch is
// refused.
absl::Status CudaCollectEdits(const CudaHistoryInputs& inputs,
                              CudaRowEdits* row_edits, TokenEdit* edits,
                              cudaStream_t stream);

}  // namespace espalier
