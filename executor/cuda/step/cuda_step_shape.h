// CudaStepShape: the host values that determine the launch sizes and the
// scratch of a step. A step that is enqueued function by function has the
// counts of its batch. A graph has rounded-up bounds of them, so that many
// steps replay it. Plain C++, so that host tests can check all indices against
// the memory.
#pragma once

#include <cstdint>
#include <string>

#include "base/device_layout.h"
#include "executor/cuda/batch/cuda_step_limits.h"
#include "kernels/gumbel_topk/cuda_gumbel_topk_layout.h"
#include "kernels/sample/cuda_sample_layout.h"
#include "kernels/select/cuda_select_layout.h"
#include "kernels/verify/cuda_verify_layout.h"

namespace espalier {

struct CudaInputBatch;

struct CudaStepShape {
  int num_rows = 0;    // beam slots; padded for a graph
  int num_tokens = 0;  // prompts included; padded for a graph
  int num_logits_rows = 0;
  int max_groups = 1;
  int max_candidates = 0;  // per group that CudaSelect serves; 0: no group
  int max_group_rows = 0;  // per group that CudaSelect serves
  int max_draws = 0;
  int max_gumbel_top_k = 0;  // candidates per row with noise; 0: no such row
  int max_asked = 0;         // log-probability queries
  int max_best = 0;          // best tokens per row of logits
  int max_copies = 0;        // tail copies
  // Sequences whose drafts are verified by rejection, and all rows of logits
  // with the rows of drafts; 0: no such sequence.
  int max_verified = 0;
  int num_verify_rows = 0;
  bool verifies_draft_rows = false;  // drafts were sampled from logits
  bool verifies_filtered = false;    // some row is filtered
  bool has_edits = false;
  bool has_masks = false;           // some row has a token mask
  bool has_state_masks = false;     // some mask is of texts without stacks
  bool has_item_masks = false;      // some mask is of items
  bool has_pushdown_masks = false;  // some mask is of texts with stacks
  bool has_device_edits = false;    // built from histories
  bool has_edited_rows = false;     // some row is selected from after its edits
  bool has_partials = false;        // false: attention is one launch
  bool has_cross_partials = false;  // likewise for cross-attention
  bool has_own_tables = false;      // CudaAttentionInputs::has_own_tables
  friend auto operator<=>(const CudaStepShape&, const CudaStepShape&) = default;
};

// Returns the shape of a batch before attention is planned: has_partials,
// has_cross_partials and has_own_tables are unset. `num_copies` is the number
// of page copies in the plan, in addition to the tail copies of beams.
CudaStepShape ShapeOf(const CudaInputBatch& batch, int num_copies);
// True if a graph can run the padded batch: each token has a row of logits, and
// there are no more draws than rows of logits. (A prompt's single row may have
// many draws.)
bool IsReplayable(const CudaInputBatch& batch);
// Returns the shape of the graph that can replay a step of shape `step`.
// REQUIRES: IsReplayable; rows and tokens are padded.
CudaStepShape GraphShape(const CudaStepShape& step,
                         const CudaStepLimits& limits);

// Returns the padded number of rows of drafts for a graph, at most max_rows.
int PaddedDraftRows(int num_rows, int max_rows);

// Return bounds of a step's selections by CudaSelect, Gumbel top-k and best
// tokens. The first two have the batch's groups, and groups of Gumbel top-k
// have one row. Best tokens have a group for each row of logits.
CudaSelectBounds SelectBounds(const CudaStepShape& shape,
                              const CudaStepLimits& limits, int vocab_size);
CudaSelectBounds GumbelTopKBounds(const CudaStepShape& shape,
                                  const CudaStepLimits& limits, int vocab_size);
CudaSelectBounds BestBounds(const CudaStepShape& shape,
                            const CudaStepLimits& limits, int vocab_size);

// Scratch sizes of selection and sampling, for every step within the limits.
// Selection, sampling and the selection of best tokens share the `choice` bytes
// one after the other; nothing is kept there between them.
struct CudaStepScratch {
  CudaStepScratch(const CudaStepLimits& limits, int vocab_size);

  size_t logits_bytes = 0;  // [max_rows, vocab_size]  f32
  size_t choice_bytes = 0;
  size_t gumbel_bytes = 0;  // larger than all logits
};

// Returns the first index outside the step's memory that a kernel would use, or
// the first range that two kernels or two groups would both write; "" if there
// is none, as in every valid step. `shape` is the step's or its graph's.
std::string ScratchFault(const CudaInputBatch& batch,
                         const CudaStepShape& shape,
                         const CudaStepLimits& limits);

}  // namespace espalier
