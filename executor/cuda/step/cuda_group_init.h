// CudaGroupInit: the rows by which a plan sets a group, in place of what the
// device had of it. Those that feed one generated token for each of the group's
// slots set its beams and are fed from there from then on, like a continuation;
// others, those of prompts among them, set its tables alone, and are fed from
// the plan. So do rows with drafts, and rows of different lengths: from such a
// step a group does not go on by itself. Where beams feed drafted paths there
// may be more rows than beams; each has a slot for that step.
//
//   ASSIGN_OR_RETURN(const auto rows, CudaGroupInit::Find(plan, selection));
//   rows.Put(memory, page_size, group, &delta);
//
// Thread safety: a plain value.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "exec_request/step_plan.h"
#include "executor/cuda/batch/cuda_groups.h"
#include "executor/cuda/batch/cuda_step_memory.h"
#include "executor/cuda/transfer/cuda_delta.h"

namespace espalier {

class CudaGroupInit {
 public:
  // Those that a selection of the plan is from. Both outlive it.
  // REQUIRES: selection.num_rows >= 1.
  // Errors: kInvalidArgument if the last row of logits that it is from is not
  // its row's last, or rows end at different positions where they may not
  // (HasDifferentRows).
  static absl::StatusOr<CudaGroupInit> Find(const StepPlan& plan,
                                            const PlanSelection& selection);

  // Of the plan, by rank; or by path.
  const std::vector<int>& rows() const { return rows_; }
  // Whether they set the group's beams.
  bool feeds_beams() const { return feeds_beams_; }

  // Says in `*group` where it is now, and puts its tables on the device, which
  // slots its rows live in and how far they are; and what its beams feed, if
  // they are set.
  void Put(const CudaStepMemory& memory, int page_size, CudaGroup* group,
           CudaDelta* delta) const;

 private:
  CudaGroupInit(const StepPlan* plan, const PlanSelection* selection)
      : plan_(plan), selection_(selection) {}

  bool FeedsBeams() const;
  // How many pages all rows begin with, `limit` at most.
  int NumCommonPages(int limit) const;
  // Where a rank has its home: those of kRows are their slots.
  int HomeOf(int rank) const;
  void PutTables(const CudaStepMemory& memory, const CudaGroup& group,
                 CudaDelta* delta) const;
  void PutHomes(const CudaStepMemory& memory, const CudaGroup& group,
                CudaDelta* delta) const;
  void PutBeams(const CudaStepMemory& memory, int page_size,
                const CudaGroup& group, CudaDelta* delta) const;

  const StepPlan* plan_;
  const PlanSelection* selection_;
  std::vector<int> rows_;
  bool feeds_beams_ = false;
};

// How many slots the group of a selection has on the device in the step; and
// which of them a row of its lives in, by rank, or by path.
int NumSlotsOf(const PlanSelection& selection);
inline int SlotOf(const PlanSelection& selection, int row) {
  return selection.has_paths() ? row : selection.slots[row];
}

// The row that a row of logits is of.
int PlanRowOf(const StepPlan& plan, int logits_row);

}  // namespace espalier
