// CudaStepLimits: bounds of one step on the device, which determine the size of
// all step memory. Plain C++, except for CUDA headers.
#pragma once

#include <cstdint>

#include "exec_request/cuda_model.h"

namespace espalier {

// Bounds of a step.
struct CudaStepLimits {
  int max_rows = 1;    // rows of logits: beams, or slots of beams
  int max_tokens = 1;  // >= max_rows
  // Slots of all resident groups, twice the rows. The second half serves groups
  // that wait a step, keeps compaction of slots rare, and holds draft paths,
  // which have a slot each for one step. A plan has at most max_rows rows of
  // logits and each path at least one, so max_rows more slots are enough.
  int num_slots = 2;
  int table_stride = 1;   // pages per sequence
  int source_stride = 0;  // pages per source; 0: the model has no encoder
  int num_pages = 1;      // that tables may name
  int vocab_size = 1;
  int max_candidates = 4;  // per step, sampled tokens included
  int max_eos_token_ids = 1;
  int max_edits = 1;        // per step
  int max_best_tokens = 1;  // per step, reported with log-probabilities
  int max_items = 1;        // attention work items
  int max_partials = 1;

  // Page ids per table: the decoder's pages, then the source's.
  int row_stride() const { return table_stride + source_stride; }
  // Tables of rows without a selection (StepLimits::max_prefill_rows).
  int num_row_tables() const { return max_rows < 64 ? max_rows : 64; }
  // Token masks that later steps use again, beside one for each row.
  int num_cached_masks() const { return 1024; }
  // Places with a stack that have one: so many that a table of them is at most
  // half full.
  int num_kept_places() const { return 2 * num_cached_masks(); }
  // And those of lists of tokens.
  int num_list_masks() const { return max_rows < 256 ? 256 : max_rows; }
  int first_cached_mask() const { return max_rows; }
  int first_list_mask() const { return max_rows + num_cached_masks(); }
  int64_t num_masks() const {
    return int64_t{first_list_mask()} + num_list_masks();
  }
  // Log-probability queries: candidates and tokens of prompts.
  int max_asked_tokens() const { return max_candidates + max_rows; }
};

// Returns limits for all requests within LimitsOfRequests(). Requests with at
// most max_rows beams in total never exceed them in groups, slots, rows, logits
// or EOS ids.
CudaStepLimits StepLimitsOf(const ModelDescription& model,
                            const CudaCallBounds& bounds);

// Returns the limits on concurrent requests.
StepLimits LimitsOfRequests(const CudaStepLimits& limits);

}  // namespace espalier
