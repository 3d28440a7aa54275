// PersistentGroups: what an executor keeps of groups that run ahead
// (step_plan.h), and how they go on: which beams the candidates make, in which
// slots they live, what their tables hold, and their histories where score
// processors read them. This is the form for the host. An executor that keeps
// the same state elsewhere is checked against it.
//
//   groups.ExpandContinuations(&plan);  // into rows, copies, selections
//   ... run the plan ...
//   groups.Advance(result);   // or DiscardFailedStep(), if that failed
//
// For one thread at a time.
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "exec_request/step_plan.h"

namespace espalier {

class PersistentGroups {
 public:
  // Pages are of `page_size` tokens.
  explicit PersistentGroups(int page_size) : page_size_(page_size) {}

  // Writes the continuations of `*plan` out as rows after its own, with the
  // page copies and selections these need, so that a model can run it; takes
  // note of the groups that its selections set and that ended. A group without
  // beams, or without state, gets a selection from no rows.
  // Rows written out have no sequence: models that keep state by sequence
  // cannot run them.
  void ExpandContinuations(StepPlan* plan);

  // Takes the answer to the plan written out last.
  // REQUIRES: `result` answers it.
  void Advance(const StepResult& result);

  // The plan written out last has failed: forgets its groups.
  void DiscardFailedStep();

  int num_groups() const { return static_cast<int>(groups_.size()); }

 private:
  struct Beam {
    int slot = 0;
    int parent_slot = 0;  // before the step that it feeds in
    TokenId token = 0;    // generated, and not fed yet
    float cum_log_prob = 0;
    int sample = 0;  // that it is, if it is one
    // Up to `token`, as PlanSelection::histories are; if they are kept.
    std::vector<TokenId> history;
  };
  struct Group {
    int num_slots = 0;
    SmallVector<TokenId> eos_token_ids;       // ascending
    std::vector<std::vector<PageId>> tables;  // [num_slots]
    std::vector<Beam> beams;                  // by rank
    SmallVector<int> samples;                 // that draw in the step that runs
    bool keeps_histories = false;             // because processors need them
    int source_length = 0;                    // PlanRow::source_length
  };

  // The group as the rows of `selection` say; `rows` are theirs in the plan.
  static Group FromRows(const StepPlan& plan, const PlanSelection& selection,
                        std::span<const int> rows);
  void ExpandContinuations(const GroupContinuation& continuation,
                           StepPlan* plan);
  void MoveForks(const GroupContinuation& continuation, Group* group,
                 std::vector<PageCopy>* copies) const;
  static void AddRow(const Group& group, const Beam& beam, int position,
                     StepPlan* plan);
  static void NextBeams(std::span<const Candidate> candidates, Group* group);

  const int page_size_;
  std::unordered_map<RequestId, Group> groups_;
  std::vector<RequestId> asked_;  // by the plan written out last, in its order
};

}  // namespace espalier
