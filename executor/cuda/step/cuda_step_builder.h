// CudaStepBuilder: step plans into what the device is told. It knows which
// groups live on the device, sets those that come as rows
// (cuda_group_init.h), follows those that run ahead, lays out the
// step's batch, and collects what the device needs in a CudaDelta.
//
// Rows that set beams, and continuations, are rows of beams: a step that has
// nothing else can be replayed from a graph. Other rows, those of prompts, set
// the tables, and selection makes the beams. Samples are beams in all this.
// Rows with drafts are fed as prompts are, and verified as far as a step has
// room for their rows of logits and edits beside what others need. A step each
// of whose tokens has a row of logits, as all of these have, is padded and can
// be replayed from a graph as well.
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
#include "executor/cuda/batch/cuda_groups.h"
#include "executor/cuda/batch/cuda_input_batch.h"
#include "executor/cuda/batch/cuda_plan_sources.h"
#include "executor/cuda/batch/cuda_step_memory.h"
#include "executor/cuda/step/cuda_step.h"
#include "executor/cuda/transfer/cuda_delta.h"

namespace espalier {

class CudaStepBuilder {
 public:
  // `memory` outlives it.
  CudaStepBuilder(const ModelDescription& model,
                  const CudaAttentionShape& attention,
                  const CudaStepMemory* memory, const CudaDevice& device);

  // Adds to `*delta` what the device must know before the step. Where
  // `gumbel_status` is an error, it is the answer of selections from perturbed
  // rows: their rows are fed, and their groups are dropped after the step.
  // Errors: as CudaExecutor::Execute; Reset must follow, and the delta must
  // not be used.
  // REQUIRES: `sources` were taken out of the plan.
  absl::StatusOr<CudaStep> Build(const StepPlan& plan,
                                 const CudaPlanSources& sources,
                                 const absl::Status& gumbel_status,
                                 CudaDelta* delta);

  // Forgets the groups that ended. Build does so too.
  void DropEnded(const StepPlan& plan);

  // No group is on the device and nothing else is known of what it has, but
  // that steps [0, num_steps) of reports were written.
  void Reset(int64_t num_steps);

 private:
  // A group with its rows in the batch.
  struct Entry {
    CudaGroup* group = nullptr;
    CudaGroupRequest request;
    size_t answer = 0;
    // Of groups whose prompt the plan feeds.
    std::vector<int> rows;  // of the plan, by rank, or by path
    std::span<const float> cum_log_probs;
    const PlanSelection* selection = nullptr;
  };

  // Whether the error of gumbel_status is its answer.
  bool IsRefused(const PlanSelection& selection) const;
  // Gives slots to groups that the plan's rows set; only then it is known
  // where every group is.
  absl::Status PlaceGroups(const StepPlan& plan);
  absl::Status FindGroups(const StepPlan& plan);
  absl::Status FindSelection(const StepPlan& plan,
                             const PlanSelection& selection, size_t answer);
  absl::Status FindContinuation(const GroupContinuation& continuation,
                                size_t answer);

  absl::Status LayOut(const StepPlan& plan, CudaInputBatch* batch,
                      CudaStep* step);
  // How many rows the batch of the plan's beams, in `batch`, is padded to; -1
  // if no graph can run the plan.
  int NumReplayableRows(const StepPlan& plan,
                        const CudaInputBatch& batch) const;
  // What the row feeds becomes part of its history.
  void PutPageTokens(const StepPlan& plan, size_t row);
  std::vector<int> NumAhead(const StepPlan& plan) const;
  absl::Status LayOutPrompts(const StepPlan& plan, CudaInputBatch* batch,
                             CudaStep* step);
  // Of prompts_; `first_tokens` of rows in the batch; -1: fed as beams.
  void SharePages(const StepPlan& plan, std::span<const int> first_tokens,
                  CudaInputBatch* batch) const;
  void LayOutLogitsRows(const StepPlan& plan, std::span<const int> first_tokens,
                        CudaInputBatch* batch, CudaStep* step);
  absl::Status LayOutScorings(const StepPlan& plan,
                              std::span<const int> first_tokens,
                              CudaInputBatch* batch, CudaStep* step);
  // The tables of a row that is fed from the plan: of its own pages, and of its
  // source's. -1 for others.
  struct RowTables {
    int own = -1;
    int source = -1;
  };
  absl::StatusOr<std::vector<RowTables>> PromptTables(const StepPlan& plan);
  // Says where the source of the group that the row is of is.
  void PutSource(const StepPlan& plan, int row, CudaGroup* group);
  absl::Status CheckPages(const StepPlan& plan, int row) const;
  absl::Status CheckLimits(const CudaInputBatch& batch,
                           const CudaStep& step) const;
  void PutCopies(const StepPlan& plan);
  void DropPassing(const StepPlan& plan);

  // Constant after construction.
  const CudaInputBatch::Shape shape_;
  const CudaStepMemory* const memory_;
  const int device_ordinal_;

  CudaGroups groups_;
  CudaBatchUploader uploader_;
  bool was_reset_ = false;  // since the last step
  int64_t num_steps_ = 0;   // at the last reset

  // Of the plan being built.
  CudaDelta* delta_ = nullptr;
  const CudaPlanSources* sources_ = nullptr;
  absl::Status gumbel_status_;
  std::vector<Entry> beams_;
  std::vector<Entry> prompts_;
  std::vector<Entry> refused_;  // whose rows are fed from the plan
};

// How many rows a batch of `num_rows` beams is padded to: few shapes, so few
// graphs, and little padding. At most max(num_rows, max_rows).
int PaddedRows(int num_rows, int max_rows);

}  // namespace espalier
