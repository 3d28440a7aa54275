// CudaStepShape: the host values that size the launches of a step, and what
// they make of the step's scratch. A step that is enqueued function by function
// has the counts of its batch; a graph has bounds of them, rounded up, so that
// many steps replay it. Plain C++; tests on the host check that what kernels
// index is what there is room for.
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
  int num_rows = 0;         // of beams; padded for a graph
  int num_tokens = 0;       // with those of prompts; padded for a graph
  int num_logits_rows = 0;  // of logits
  int max_groups = 1;
  int max_candidates = 0;  // of a group that is selected for; 0: none is
  int max_group_rows = 0;  // of one that is selected for
  int max_draws = 0;
  int max_gumbel_top_k = 0;  // of a row with noise; 0: there is none
  int max_asked = 0;         // log-probabilities
  int max_best = 0;          // tokens of a row of logits
  int max_copies = 0;        // of tails
  // Drafts that rejection verifies: sequences, and rows of logits with those of
  // drafts; 0: there are none.
  int max_verified = 0;
  int num_verify_rows = 0;
  bool verifies_draft_rows = false;  // drafts have rows
  bool verifies_filtered = false;    // some row is filtered
  bool has_edits = false;
  bool has_device_edits = false;    // of histories
  bool has_partials = false;        // without any, attention is one launch
  bool has_cross_partials = false;  // the same of cross-attention
  bool has_own_tables = false;      // CudaAttentionInputs::has_own_tables
  friend auto operator<=>(const CudaStepShape&, const CudaStepShape&) = default;
};

// Of the batch, before attention is planned: without has_partials and
// has_own_tables. `num_copies`
// is of the plan, beside those that rows of beams may need.
CudaStepShape ShapeOf(const CudaInputBatch& batch, int num_copies);
// Whether a graph can run the batch, once it is padded: each token has a row of
// logits, and there are no more draws than these. (A prompt's one row may be
// drawn from many times.)
bool IsReplayable(const CudaInputBatch& batch);
// Of the graph that a step of that shape can be replayed from.
// REQUIRES: IsReplayable; rows and tokens are padded.
CudaStepShape GraphShape(const CudaStepShape& step,
                         const CudaStepLimits& limits);

// Rows of logits of drafts, padded for a graph: few shapes. At most max_rows.
int PaddedDraftRows(int num_rows, int max_rows);

// Bounds of the selections of a step. That of Gumbel top-k has a group a row,
// of the batch's groups, as CudaSelect's own; that of best tokens a group a
// row of logits.
CudaSelectBounds SelectBounds(const CudaStepShape& shape,
                              const CudaStepLimits& limits, int vocab_size);
CudaSelectBounds GumbelTopKBounds(const CudaStepShape& shape,
                                  const CudaStepLimits& limits, int vocab_size);
CudaSelectBounds BestBounds(const CudaStepShape& shape,
                            const CudaStepLimits& limits, int vocab_size);

// The scratch of choosing, for every step within the limits. Selection,
// sampling and the selection of best tokens take turns in `choice`: nothing is
// kept there between them.
struct CudaStepScratch {
  CudaStepScratch(const CudaStepLimits& limits, int vocab_size);

  size_t logits_bytes = 0;  // [max_rows, vocab_size]  f32
  size_t choice_bytes = 0;
  size_t gumbel_bytes = 0;  // as large as all logits, and more
};

// What kernels would index of a step's memory that it has not, or that two of
// them, or two groups, would both write; "" if there is nothing, as must be.
// `shape` is one of the step's.
std::string ScratchFault(const CudaInputBatch& batch,
                         const CudaStepShape& shape,
                         const CudaStepLimits& limits);

}  // namespace espalier
