// PersistentGroups: group state that an executor keeps between asynchronously
// scheduled steps (step_plan.h), and the update from one step to the next: the
// beams that the candidates make, their slots and page tables, their histories
// if score processors read them, and their places in a constraint, of which it
// makes the lists of legal tokens. This is the host implementation, and
// the reference for executors that keep this state elsewhere.
//
//   groups.ExpandContinuations(&plan);  // into rows, copies, selections
//   ... run the plan ...
//   groups.Advance(result);   // or DiscardFailedStep(), if that failed
//
// Thread safety: one thread at a time.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "exec_request/step_plan.h"
#include "exec_request/surviving_candidates.h"

namespace espalier {

class PersistentGroups {
 public:
  explicit PersistentGroups(int page_size) : page_size_(page_size) {}

  // Expands the continuations of `*plan` to rows after its own, with the page
  // copies and selections that these need, so that a model can run the plan.
  // Records the groups that its selections set, and drops those that ended. A
  // group without beams, or without state, gets a selection from no rows.
  // Expanded rows have no sequence, so models that keep state by sequence
  // cannot run them.
  void ExpandContinuations(StepPlan* plan);

  // Applies the result of the last expanded plan.
  // REQUIRES: `result` is valid for this plan.
  void Advance(const StepResult& result);

  // Drops the groups of the last expanded plan, which has failed.
  void DiscardFailedStep();

  int num_groups() const { return static_cast<int>(groups_.size()); }

 private:
  struct Beam {
    int slot = 0;
    int parent_slot = 0;  // before the next step
    TokenId token = 0;    // generated, and not fed yet
    float cum_log_prob = 0;
    int sample = 0;  // index in the request, if it draws
    // As in PlanSelection::histories, up to `token`; if histories are kept.
    std::vector<TokenId> history;
    ConstraintPlace place;  // after `token`, if there is a constraint
  };
  struct Group {
    int num_slots = 0;
    SmallVector<TokenId> eos_token_ids;  // ascending
    // For the running step. `params` are set if there is a constraint.
    std::shared_ptr<const SelectionParams> params;
    std::vector<ConstraintPlace> places;      // by row
    int max_candidates = 0;                   // as many may lack beams
    std::vector<std::vector<PageId>> tables;  // [num_slots]
    std::vector<Beam> beams;                  // by rank
    SmallVector<int> samples;                 // that draw in the running step
    bool keeps_histories = false;             // processors need them
    std::optional<PlanSource> source = {};    // as its rows have it
  };

  // Returns the group that the rows of `selection` set. `rows` are plan rows.
  static Group FromRows(const StepPlan& plan, const PlanSelection& selection,
                        std::span<const int> rows);
  void ExpandContinuations(const GroupContinuation& continuation,
                           StepPlan* plan);
  void MoveForks(const GroupContinuation& continuation, Group* group,
                 std::vector<PageCopy>* copies) const;
  static void AddRow(const Group& group, const Beam& beam, int position,
                     StepPlan* plan);
  static void NextBeams(std::span<const Candidate> candidates, Group* group);
  static std::vector<SurvivingCandidate> Survivors(
      std::span<const Candidate> candidates, const Group& group);
  // Replaces the places of `*selection` by lists of tokens.
  void MakeLists(PlanSelection* selection);

  const int page_size_;
  std::unordered_map<RequestId, Group> groups_;
  std::vector<RequestId> asked_;  // request of each result of the last plan
  // Legal tokens of the rows of the last plan.
  std::deque<std::vector<TokenId>> lists_;
};

}  // namespace espalier
