// CudaDraftRoom: what a step has left for drafts beside all that requests need.
// A request takes the room of its sequences when it begins, and drafts take
// what nobody needs in a step: rows of logits, draws, candidates, edits of
// scores. A draft that finds none is fed, but not verified, so that it costs
// its request a step and nobody's result. No step fails because of drafts.
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
  // `batch` has all rows of logits but those of prompts that are scored, and
  // those of the plan's selections whose rows differ (HasDifferentRows).
  CudaDraftRoom(const StepPlan& plan, const CudaStepLimits& limits,
                const CudaInputBatch& batch);

  // Whether the drafts of the selection, one of these, can be verified: if so,
  // that room is taken.
  bool Take(const PlanSelection& selection);

 private:
  // What rows of logits need; of the first of each row, or of those after it.
  struct Needs {
    int64_t num_logits_rows = 0;
    int64_t num_draws = 0;
    int64_t num_candidates = 0;
    int64_t num_edits = 0;
  };
  bool Has(const Needs& needs) const;
  void Subtract(const Needs& needs);
  Needs NeedsOf(const PlanSelection& selection, bool of_drafts) const;
  // Of beams, whose step without drafts is one selection from all of them.
  Needs NeedsOfPaths(const PlanSelection& selection, bool of_drafts) const;
  // Of drafts that a model has drawn: as if none had ended early
  // (PlanSelection::max_draft_tokens).
  Needs NeedsOfDrawn(const PlanSelection& selection) const;

  const int vocab_size_;
  Needs left_;
};

}  // namespace espalier
