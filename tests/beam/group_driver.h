// GroupDriver: the smallest engine there is. It runs beam groups together on
// one toy model, a plan at a time, and checks the laws of pages and plans at
// every step.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "beam/beam_group.h"
#include "pages/page_pool.h"
#include "tests/toy_model.h"

namespace espalier::testing {

class GroupDriver {
 public:
  explicit GroupDriver(const ToyModelOptions& options);

  // Adds a group that feeds at most `chunk` tokens of its prompt in a step.
  // Errors: as PagePool::Reserve.
  absl::Status Add(const Request& request, int chunk);

  // Plans all groups that are not done, runs the model, and advances them.
  // Errors: as BeamGroup::PlanStep; kInternal if a law is broken.
  absl::Status Step();
  // Drops a group before the next step.
  void Drop(size_t group_idx);
  // Steps until all groups are done, and once more to drop what is left.
  absl::Status Finish();

  bool done() const;
  const BeamGroup& group(size_t group_idx) const {
    return *groups_[group_idx].group;
  }
  // How the last Advance of the group went.
  const absl::Status& status(size_t group_idx) const {
    return groups_[group_idx].status;
  }
  // The plan that ran last, what it answered, and the most pages ever held.
  const StepPlan& last_plan() const { return last_plan_; }
  const StepResult& last_result() const { return last_result_; }
  int max_held() const { return max_held_; }

 private:
  struct Entry {
    std::unique_ptr<BeamGroup> group;
    int chunk;
    absl::Status status;
  };

  absl::Status CheckPages() const;
  absl::Status Plan();
  void Select(std::span<const float> logits);
  void Advance();

  ToyModel model_;
  PagePool pool_;
  SequenceIdSource ids_;
  std::vector<Entry> groups_;
  StepPlan next_plan_;
  StepPlan last_plan_;
  StepResult last_result_;
  int max_held_ = 0;
};

}  // namespace espalier::testing
