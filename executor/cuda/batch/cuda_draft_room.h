// CudaDraftRoom: capacity of a step that is left for drafts. A request reserves
// capacity for its sequences when it begins. Drafts use capacity that a step
// leaves free: rows of logits, draws, candidates, score edits. A draft that
// does not fit is fed but not verified: its request loses a step, and no result
// changes. No step fails because of drafts.
//
// Thread safety: a plain value.
#pragma once

#include <cstdint>

#include "exec_request/step_plan.h"
#include "executor/cuda/batch/cuda_input_batch.h"
#include "executor/cuda/batch/cuda_step_limits.h"

namespace espalier {

class CudaDraftRoom {
 public:
  // REQUIRES: `batch` has all rows of logits except prompt log-probabilities
  // and the selections whose rows differ (HasDifferentRows).
  CudaDraftRoom(const StepPlan& plan, const CudaStepLimits& limits,
                const CudaInputBatch& batch);

  // Reserves capacity for the drafts of a selection; false if they do not fit.
  // REQUIRES: HasDifferentRows(selection).
  bool Take(const PlanSelection& selection);

 private:
  // Capacity that some rows of logits need.
  struct Needs {
    int64_t num_logits_rows = 0;
    int64_t num_draws = 0;
    int64_t num_candidates = 0;
    int64_t num_edits = 0;
  };
  bool Has(const Needs& needs) const;
  void Subtract(const Needs& needs);
  // Returns the needs of the first row of logits of each plan row, or with
  // `of_drafts` of the rows of logits after it.
  Needs NeedsOf(const PlanSelection& selection, bool of_drafts) const;
  // NeedsOf() for beams: without drafts, a step selects from all beams at once.
  Needs NeedsOfPaths(const PlanSelection& selection, bool of_drafts) const;
  // NeedsOf() for drafts sampled by a draft model. Every draft counts with full
  // length, even if it ended early (SampleDrafts::max_tokens).
  Needs NeedsOfDrawn(const PlanSelection& selection) const;

  const int vocab_size_;
  Needs left_;
};

}  // namespace espalier
