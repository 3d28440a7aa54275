// Selections whose rows of logits differ, for example because of drafts: adds
// their rows of logits, and the logits that drafts were sampled from, to a
// step's batch.
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
  std::span<const int> rows = {};          // plan rows, by rank or by path
  std::span<const int> first_tokens = {};  // index in the batch, by plan row
  const CudaGroup* group = nullptr;
  CudaGroupRequest request = {};
  bool verifies = false;  // the drafts fit and are verified
};

// Adds the selection's rows of logits to the batch and its drafts to the step.
void AddDifferentRows(const CudaDifferentRows& rows, CudaInputBatch* batch,
                      CudaStep* step, CudaStep::Answer* answer);

// Returns the number of rows of draft logits that verification reads, over all
// selections.
int64_t NumDraftRows(const StepPlan& plan);
// Places rows of draft logits after all rows of logits, with padding if the
// step is padded. Logits on device `ordinal` are read in place.
void PlaceDraftRows(const CudaStepLimits& limits, int ordinal,
                    CudaInputBatch* batch, CudaStep* step);

}  // namespace espalier
