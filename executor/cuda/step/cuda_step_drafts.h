// Rows of logits that differ, of selections with drafts for one, in a step's
// batch: which tokens they are of, and the rows that drafts were drawn from.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "exec_request/step_plan.h"
#include "executor/cuda/batch/cuda_groups.h"
#include "executor/cuda/batch/cuda_input_batch.h"
#include "executor/cuda/batch/cuda_step_limits.h"
#include "executor/cuda/step/cuda_step.h"

namespace espalier {

// A selection whose rows of logits differ (HasDifferentRows), in a batch that
// has the tokens of its rows.
struct CudaDifferentRows {
  const StepPlan* plan = nullptr;
  const PlanSelection* selection = nullptr;
  std::span<const int> rows = {};          // of the plan, by rank, or by path
  std::span<const int> first_tokens = {};  // of the batch, by row of the plan
  const CudaGroup* group = nullptr;
  CudaGroupRequest request = {};
  bool verifies = false;  // whether there is room for that
};

// Adds its rows of logits to the batch, and to the step what its drafts need.
void AddDifferentRows(const CudaDifferentRows& rows, CudaInputBatch* batch,
                      CudaStep* step, CudaStep::Answer* answer);

// Of drafts that verification reads the logits of, of all selections.
int64_t NumDraftRows(const StepPlan& plan);
// Places rows of drafts after all rows of logits; padded if the step is. Those
// on the device `ordinal` are read where they are.
void PlaceDraftRows(const CudaStepLimits& limits, int ordinal,
                    CudaInputBatch* batch, CudaStep* step);

}  // namespace espalier
