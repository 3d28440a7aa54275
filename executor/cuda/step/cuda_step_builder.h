// CudaStepBuilder: translates step plans into batches and writes to device
// memory. It tracks the groups on the device, initialises groups that come as
// rows (cuda_group_init.h), advances groups that run ahead, lays out the step's
// batch, and collects all writes in a CudaDelta.
//
// Continuations, and rows that set beams, are rows of beams. A step that has
// nothing else can be replayed from a graph. Other rows, like prompts, set page
// tables, and selection makes the beams. Samples count as beams here. Rows with
// drafts are fed like prompts. They are verified if the step has capacity for
// their rows of logits and edits (CudaDraftRoom). A step in which every token
// has a row of logits is padded and can be replayed from a graph too.
//
// Thread safety: plain state, of one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/cuda.h"
#include "exec_request/model.h"
#include "exec_request/step_plan.h"
#include "executor/cuda/batch/cuda_batch_uploader.h"
#include "executor/cuda/batch/cuda_constraints.h"
#include "executor/cuda/batch/cuda_groups.h"
#include "executor/cuda/batch/cuda_input_batch.h"
#include "executor/cuda/batch/cuda_list_masks.h"
#include "executor/cuda/batch/cuda_step_memory.h"
#include "executor/cuda/step/cuda_step.h"
#include "executor/cuda/transfer/cuda_delta.h"

namespace espalier {

class CudaStepBuilder {
 public:
  // Without `constraints`, rows are restricted by lists alone.
  // REQUIRES: `memory` and `constraints` outlive the builder.
  CudaStepBuilder(const ModelDescription& model,
                  const CudaAttentionShape& attention,
                  const CudaStepMemory* memory, const CudaDevice& device,
                  const CudaConstraints* constraints = nullptr);

  // Builds a step; adds the writes that must precede it to `*delta`. If
  // `gumbel_status` is an error, selections by Gumbel top-k fail with it, and
  // so do those whose constraint was not placed: their rows are fed, and their
  // groups are dropped after the step.
  // Errors: as CudaExecutor::Execute. Then the delta must not be used, and
  // Reset() must be called.
  absl::StatusOr<CudaStep> Build(const StepPlan& plan,
                                 const absl::Status& gumbel_status,
                                 CudaDelta* delta);

  // Drops the groups of requests that ended. Build() does so too.
  void DropEnded(const StepPlan& plan);

  // Drops all groups and shadow copies. `num_steps` is the number of reports
  // that the device has written.
  void Reset(int64_t num_steps);

 private:
  // A group with its rows in the batch.
  struct Entry {
    CudaGroup* group = nullptr;
    CudaGroupRequest request;
    size_t answer = 0;
    // The rest is for groups that are fed from the plan.
    std::vector<int> rows;  // plan rows, by rank or by path
    std::span<const float> cum_log_probs;
    const PlanSelection* selection = nullptr;
  };

  // Returns the error that the selection fails with, if it must fail.
  absl::Status RefusalOf(const PlanSelection& selection) const;
  // As CudaConstraints::Find; -1 if no step has masks.
  absl::StatusOr<int> IndexOf(const SelectionParams& params) const;
  CudaGroupRequest RequestOfRows(const PlanSelection& selection) const;
  // Allocates slots for the groups that the plan's rows set. This may move
  // other groups, so slots are final only afterwards.
  absl::Status PlaceGroups(const StepPlan& plan);
  absl::Status FindGroups(const StepPlan& plan);
  absl::Status FindSelection(const StepPlan& plan,
                             const PlanSelection& selection, size_t answer);
  absl::Status FindContinuation(const GroupContinuation& continuation,
                                size_t answer);

  absl::Status LayOut(const StepPlan& plan, CudaInputBatch* batch,
                      CudaStep* step);
  // Returns the number of beam rows to pad `batch` to, which has the plan's
  // beams; -1 if no graph can run the plan.
  int NumReplayableRows(const StepPlan& plan,
                        const CudaInputBatch& batch) const;
  // Adds the tokens that the row feeds to its history on the device.
  void PutPageTokens(const StepPlan& plan, size_t row);
  std::vector<int> NumAhead(const StepPlan& plan) const;
  absl::Status LayOutPrompts(const StepPlan& plan, CudaInputBatch* batch,
                             CudaStep* step);
  // Shares common page prefixes among the rows of each of prompts_.
  // `first_tokens` are indices in the batch by row; -1: fed as beams.
  void SharePages(const StepPlan& plan, std::span<const int> first_tokens,
                  CudaInputBatch* batch) const;
  void LayOutLogitsRows(const StepPlan& plan, std::span<const int> first_tokens,
                        CudaInputBatch* batch, CudaStep* step);
  // Tables of a row that is fed from the plan: for its own pages and for its
  // source's. -1 for other rows.
  struct RowTables {
    int own = -1;
    int source = -1;
  };
  absl::Status LayOutScorings(const StepPlan& plan,
                              std::span<const int> first_tokens,
                              std::span<const RowTables> tables,
                              CudaInputBatch* batch, CudaStep* step);
  absl::StatusOr<std::vector<RowTables>> PromptTables(const StepPlan& plan);
  // Sets the source of the row's group.
  void PutSource(const StepPlan& plan, int row, CudaGroup* group);
  absl::Status CheckPages(const StepPlan& plan, int row) const;
  absl::Status CheckLimits(const CudaInputBatch& batch,
                           const CudaStep& step) const;
  void PutMasks(const CudaInputBatch& batch);
  void PutCopies(const StepPlan& plan);
  void DropPassing(const StepPlan& plan);

  // Constant after construction.
  const CudaInputBatch::Shape shape_;
  const CudaStepMemory* const memory_;
  const int device_ordinal_;

  const CudaConstraints* const constraints_;

  CudaListMasks list_masks_;
  CudaGroups groups_;
  CudaBatchUploader uploader_;
  bool was_reset_ = false;  // since the last step
  int64_t num_steps_ = 0;   // at the last reset
  uint32_t num_resets_ = 0;

  // State of the current Build().
  CudaDelta* delta_ = nullptr;
  absl::Status gumbel_status_;
  std::vector<Entry> beams_;
  std::vector<Entry> prompts_;
  std::vector<Entry> refused_;  // see RefusalOf(); fed from the plan
};

// Returns the number of rows to pad a batch of `num_rows` beams to: few
// distinct values, so few graphs, yet little padding. At most max(num_rows,
// max_rows).
int PaddedRows(int num_rows, int max_rows);

}  // namespace espalier
