// CudaRowHistories: the text of each row of logits on the device, as input of
// kernels. A history is stored like the keys and values: `page_tokens` has a
// word for every place in every page, so beams share and move it as they do
// pages. CudaPrepareInputs writes the tokens that beams feed, the host those of
// prompts, and tail copies include them.
//
//   history of a row   tokens at places 0, 1, ..., position of its table
//
// cuda_row_history.cuh reads it.
#pragma once

#include "absl/status/status.h"
#include "base/status.h"

namespace espalier {

struct CudaRowHistories {
  // Host values.
  int num_rows = 0;  // upper bound, as captured
  int vocab_size = 0;
  int table_stride = 0;
  int page_size = 1;

  // Device memory.
  const float* cum_log_probs = nullptr;  // [num_rows] nats; -inf: dead
  const int* logits_tokens = nullptr;    // [num_rows]  the row's token
  const int* positions = nullptr;        // by token
  const int* token_tables = nullptr;     // by token
  const int* tables = nullptr;           // [tables, table_stride] page ids
  const int* page_tokens = nullptr;      // [pages, page_size]

  // Errors: kInvalidArgument if a shape is impossible.
  absl::Status Check() const {
    if (num_rows >= 1 && vocab_size >= 1 && page_size >= 1) {
      return absl::OkStatus();
    }
    return InvalidArgument("edits of ", num_rows, " rows of ", vocab_size,
                           " tokens with pages of ", page_size,
                           " are not possible");
  }
};

}  // namespace espalier
