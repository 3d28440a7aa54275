// GroupDriver: the smallest engine there is. It runs beam groups together on
// one toy model, a plan at a time, and checks the invariants of pages and plans
// at every step. It may run ahead: then each step is planned and run before the
// last one's answer is given to its groups.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "beam/sequence_group.h"
#include "executor/host/persistent_groups.h"
#include "pages/page_pool.h"
#include "tests/toy_model.h"

namespace espalier::testing {

class GroupDriver {
 public:
  // REQUIRES: run_ahead only with a model that keeps its memory in pages.
  explicit GroupDriver(const ToyModelOptions& options, bool run_ahead = false);

  // Adds a group that feeds at most `chunk` tokens of its prompt in a step. If
  // groups run ahead, tables of its constraint replace lists of legal tokens.
  //   constraint  null: its allowed sequences, if it has any
  // Errors: as PagePool::Reserve.
  absl::Status Add(const Request& request, int chunk,
                   std::shared_ptr<const Constraint> constraint = nullptr);

  // Plans all groups that can run, runs the model, and advances those whose
  // result is due.
  // Errors: as SequenceGroup::PlanStep; kInternal if an invariant is broken.
  absl::Status Step();
  // Gives groups the answer that running ahead has left open, so that the next
  // step is planned from all that is known.
  absl::Status CatchUp();
  // Drops a group before the next step.
  void Drop(size_t group_idx);
  // Steps until all groups are done, and once more for their releases.
  absl::Status Finish();

  bool done() const;
  SequenceGroup& group(size_t group_idx) { return *groups_[group_idx].group; }
  const SequenceGroup& group(size_t group_idx) const {
    return *groups_[group_idx].group;
  }
  // Status of the group's last Advance.
  const absl::Status& status(size_t group_idx) const {
    return groups_[group_idx].status;
  }
  // The last plan as the model got it, its result, and the most pages ever
  // held.
  const StepPlan& last_plan() const { return last_plan_; }
  const StepResult& last_result() const { return last_result_; }
  int max_held() const { return max_held_; }
  int num_continuations() const { return num_continuations_; }
  // Results that lacked beams, so that their steps were planned again.
  int num_repeated() const { return num_repeated_; }

 private:
  using Tables = std::multiset<std::vector<PageId>>;

  struct Entry {
    std::unique_ptr<SequenceGroup> group;
    int chunk;
    int64_t max_asked;       // candidates, of a selection
    int64_t max_candidates;  // candidates, of a result
    absl::Status status;
  };

  absl::Status CheckPages() const;
  absl::Status Plan();
  // Adds the rows of one group; counts the tail copies these take at most.
  absl::Status PlanGroup(Entry& entry, int* num_copies);
  absl::Status Run();
  // Checks that pages of an expanded plan's reads and writes are held.
  absl::Status CheckWrittenOut(const StepPlan& plan) const;
  // Checks that no selection has more candidates than its strategy ever
  // requests.
  absl::Status CheckAsked(const StepPlan& plan) const;
  void Select(std::span<const float> logits);
  static SelectionResult Answer(const PlanSelection& selection,
                                std::vector<std::vector<float>> rows);
  absl::Status Advance(const StepResult& result);
  absl::Status AdvanceUntil(size_t num_late);
  // That the group's tables are now those its step ahead ran with.
  absl::Status CheckTablesAhead(const SequenceGroup& group) const;

  ToyModel model_;
  PagePool pool_;
  SequenceIdSource ids_;
  std::vector<Entry> groups_;
  StepPlan next_plan_;
  StepPlan last_plan_;
  StepResult last_result_;
  const bool run_ahead_;
  PersistentGroups resident_;
  std::deque<StepResult> unanswered_;
  std::map<RequestId, Tables> tables_ahead_;  // that the last plan ran with
  int num_continuations_ = 0;
  int num_repeated_ = 0;
  int max_held_ = 0;
};

}  // namespace espalier::testing
