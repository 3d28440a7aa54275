// RunningGroups: the groups that were admitted and have not ended, by turn. A
// group runs, holding pages, or is preempted: it has given them back to make
// room for others, and resumes at its turn (BeamGroup::Preempt).
//
// Belongs to its scheduler's strand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "batcher/scheduler/admission.h"
#include "batcher/scheduler/deadlines.h"
#include "batcher/scheduler/request_times.h"
#include "beam/beam_group.h"
#include "beam/strategy/search_watcher.h"
#include "exec_request/step_plan.h"
#include "request/request.h"

namespace espalier {

struct RunningGroup {
  Turn turn;     // that it runs at, which may be another request's
  RequestId id;  // of the group; beside it, so that it is found without that
  std::unique_ptr<BeamGroup> group;
  std::unique_ptr<SearchWatcher> watcher;  // null if the search has none
  bool is_known = false;       // to the executor: a plan has named it
  bool was_preempted = false;  // with pages, and has not resumed since
  RequestTimes times = {};
  // What is above is read at each step.
  RequestNeeds needs = {};
  std::function<void(absl::StatusOr<Result>)> done = nullptr;
  Deadlines::Entry deadline = {};

  bool is_preempted() const { return group->is_preempted(); }
  // Throws std::bad_alloc, and the group must be ended then.
  void Preempt(const PageSaving& saving, StepPlan* plan);
};

// For whoever goes through groups, at `idx`: the next two begin to be read.
// They lie anywhere, and those that run are more than a cache holds.
[[gnu::always_inline]] inline void PrefetchAfter(
    std::span<const RunningGroup> groups, size_t idx) {
  if (idx + 2 < groups.size()) groups[idx + 2].group->Prefetch();
  if (idx + 1 < groups.size()) groups[idx + 1].group->PrefetchParts();
}

class RunningGroups {
 public:
  bool empty() const { return groups_.empty(); }
  size_t size() const { return groups_.size(); }
  RunningGroup& operator[](size_t idx) { return groups_[idx]; }
  auto begin() { return groups_.begin(); }
  auto end() { return groups_.end(); }
  auto begin() const { return groups_.begin(); }
  auto end() const { return groups_.end(); }

  // So that Add does not fail. Throws std::bad_alloc.
  void ReserveOne();
  RunningGroup& Add(RunningGroup group);
  void EraseDone();

  // Null if it is not here, or done. Fast for ids in the order of plans.
  RunningGroup* Find(RequestId id) {
    RunningGroup* const next = groups_.data() + found_;
    if (next < std::to_address(groups_.end()) && next->id == id &&
        !next->group->done()) {
      PrefetchAfter(groups_, found_++);
      return next;
    }
    return Search(id);
  }
  // Of those that are preempted, the one whose turn comes first; null if none
  // is.
  RunningGroup* FirstPreempted();
  // Of those that run the one whose turn comes last; null if none does.
  RunningGroup* LastRunning();

  int num_running() const;
  // Of all that run: what they need of a step at worst, and pages that they
  // take soon.
  RequestNeeds Needs() const;
  int64_t NumPagesSoon() const;

 private:
  RunningGroup* Search(RequestId id);

  std::vector<RunningGroup> groups_;
  size_t found_ = 0;  // index after the one found last
};

}  // namespace espalier
