// CudaStepLimits: bounds of one step on the device, which size all memory that
// a step needs. Plain C++, but for headers of CUDA.
#pragma once

#include <cstdint>

#include "exec_request/cuda_model.h"

namespace espalier {

// Bounds of a step.
struct CudaStepLimits {
  int max_rows = 1;    // beams, or slots of beams, that select
  int max_tokens = 1;  // >= max_rows
  // Of all resident groups. Twice the rows: for groups that wait a step, and
  // so that groups seldom have to move to make room for others in a row. And
  // for paths of beams, each of which has a slot for one step: a plan has at
  // most max_rows rows of logits and each path at least one, so paths add at
  // most max_rows slots to those of running groups, which are at most as many.
  int num_slots = 2;
  int table_stride = 1;    // pages of a sequence
  int source_stride = 0;   // of its source; 0: the model has no encoder
  int num_pages = 1;       // that tables may name
  int max_candidates = 4;  // of all groups of a step, and tokens drawn
  int max_eos_token_ids = 1;
  int max_edits = 1;        // of all rows of a step
  int max_best_tokens = 1;  // reported with log-probabilities, of a step
  int max_items = 1;        // of attention
  int max_partials = 1;

  // Of tables: the pages of a source are after those of the decoder.
  int row_stride() const { return table_stride + source_stride; }
  // Tables of rows that no selection is of (StepLimits::max_prefill_rows).
  int num_row_tables() const { return max_rows < 64 ? max_rows : 64; }
  // Candidates, and tokens of prompts.
  int max_asked_tokens() const { return max_candidates + max_rows; }
};

// Sized for all that is within LimitsOfRequests(): requests whose beams are at
// most max_rows together have no more groups, slots, rows, logits and EOS ids
// than this.
CudaStepLimits StepLimitsOf(const ModelDescription& model,
                            const CudaCallBounds& bounds);

// What requests may ask for, together.
StepLimits LimitsOfRequests(const CudaStepLimits& limits);

}  // namespace espalier
