// CudaGroupInit: the rows of a plan that replace a group's state on the device.
// Rows that feed one generated token for each of the group's slots set its
// beams; the device then feeds these, as for a continuation. Other rows set
// only its page tables and are fed from the plan: prompts, rows with drafts,
// and rows of different lengths. A step with rows of the last two kinds has no
// continuation. Beams with draft paths may have more rows than beams; each row
// then has a slot for that step.
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
  // Finds the rows that `selection` selects from. Both arguments outlive it.
  // REQUIRES: selection.num_rows >= 1.
  // Errors: kInvalidArgument if a row's last row of logits is not in the
  // selection, or rows end at different positions without HasDifferentRows().
  static absl::StatusOr<CudaGroupInit> Find(const StepPlan& plan,
                                            const PlanSelection& selection);

  // Rows of the plan, by rank or by path.
  const std::vector<int>& rows() const { return rows_; }
  // True if they set the group's beams.
  bool feeds_beams() const { return feeds_beams_; }

  // Updates `*group`, and adds its page tables, slots and position to `*delta`;
  // with feeds_beams() also the state of its beams.
  void Put(const CudaStepMemory& memory, int page_size, CudaGroup* group,
           CudaDelta* delta) const;

 private:
  CudaGroupInit(const StepPlan* plan, const PlanSelection* selection)
      : plan_(plan), selection_(selection) {}

  bool FeedsBeams() const;
  // Returns the length of the rows' common page prefix, at most `limit`.
  int NumCommonPages(int limit) const;
  // Returns the index of a rank in arrays by rank: the slot for kRows.
  int HomeOf(int rank) const;
  void PutTables(const CudaStepMemory& memory, const CudaGroup& group,
                 CudaDelta* delta) const;
  void PutHomes(const CudaStepMemory& memory, const CudaGroup& group,
                CudaDelta* delta) const;
  // Writes the place of a beam by rank, and returns its state there.
  int32_t PutPlace(const CudaStepMemory& memory, const CudaGroup& group,
                   int rank, CudaDelta* delta) const;
  void PutBeams(const CudaStepMemory& memory, int page_size,
                const CudaGroup& group, CudaDelta* delta) const;

  const StepPlan* plan_;
  const PlanSelection* selection_;
  std::vector<int> rows_;
  bool feeds_beams_ = false;
};

// Returns the number of slots of the selection's group in the step.
int NumSlotsOf(const PlanSelection& selection);
// Returns the slot of a row of the selection, which is a rank or a path.
inline int SlotOf(const PlanSelection& selection, int row) {
  return selection.has_paths() ? row : selection.slots[row];
}

// Returns the index of the plan row that has this row of logits.
int PlanRowOf(const StepPlan& plan, int logits_row);

}  // namespace espalier
