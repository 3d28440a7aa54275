// RunningGroups: the admitted groups that have not ended, by turn, from Add to
// Finish. A group runs, holding pages, or is preempted: it has released them to
// make room for others, and resumes at its turn (SequenceGroup::Preempt).
//
// It also holds what groups leave for the plan that is written next: forks and
// ended sequences, in the next plan, and their demand, which is collected while
// results are applied. It chooses nothing: preemption.h and step_planner.h do.
//
// Invariants: a group ends once, by Finish, which calls `done`; Find returns no
// group after that, though it stays here until EraseDone. TakeDemand returns
// the demand of exactly the groups here.
//
// Belongs to its scheduler's strand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "batcher/scheduler/admission_limits.h"
#include "batcher/scheduler/deadlines.h"
#include "batcher/scheduler/request_times.h"
#include "batcher/scheduler/scheduler_options.h"
#include "batcher/scheduler/step_demand.h"
#include "batcher/scheduler/timed_stats.h"
#include "batcher/scheduler/turn.h"
#include "beam/pages/sequence.h"
#include "beam/sequence_group.h"
#include "beam/strategy/search_watcher.h"
#include "exec_request/step_plan.h"
#include "request/request.h"

namespace espalier {

struct RunningGroup {
  Turn turn;     // its turn, which may have been another request's
  RequestId id;  // copy of the group's id, adjacent for fast lookup
  std::unique_ptr<SequenceGroup> group;
  std::unique_ptr<SearchWatcher> watcher;  // may be null
  bool is_known = false;       // a plan has named it to the executor
  bool was_preempted = false;  // while holding pages; reset when it resumes
  RequestTimes times = {};
  // Each step reads the members above.
  RequestNeeds needs = {};
  int64_t weights_version = 0;  // when it started
  std::function<void(absl::StatusOr<Result>)> done = nullptr;
  Deadlines::Entry deadline = {};

  bool is_preempted() const { return group->is_preempted(); }
  // Throws std::bad_alloc; then the group must be ended.
  void Preempt(const PageSaving& saving, StepPlan* plan);
};

// Prefetches the next two groups of a loop at `idx`. Groups are scattered in
// memory, and the running ones exceed a cache.
[[gnu::always_inline]] inline void PrefetchAfter(
    std::span<const RunningGroup> groups, size_t idx) {
  if (idx + 2 < groups.size()) groups[idx + 2].group->Prefetch();
  if (idx + 1 < groups.size()) groups[idx + 1].group->PrefetchParts();
}

class RunningGroups {
 public:
  // `counts` outlives this.
  RunningGroups(const SchedulerOptions& options, TimedStats* counts);

  // The ids of the groups' sequences.
  SequenceIdSource* sequence_ids() { return &sequence_ids_; }
  bool empty() const { return groups_.empty(); }
  size_t size() const { return groups_.size(); }
  RunningGroup& operator[](size_t idx) { return groups_[idx]; }
  auto begin() { return groups_.begin(); }
  auto end() { return groups_.end(); }
  auto begin() const { return groups_.begin(); }
  auto end() const { return groups_.end(); }

  // Reserves room so that Add cannot fail. Throws std::bad_alloc.
  void ReserveOne();
  RunningGroup& Add(RunningGroup group);

  // Returns null if the group is not here or is done. Fast for ids in plan
  // order.
  RunningGroup* Find(RequestId id) {
    RunningGroup* const next = groups_.data() + found_;
    if (next < std::to_address(groups_.end()) && next->id == id &&
        !next->group->done()) {
      PrefetchAfter(groups_, found_++);
      return next;
    }
    return Search(id);
  }
  // Returns the preempted group with the first turn; null if there is none.
  RunningGroup* FirstPreempted();
  // Returns the running group with the last turn; null if there is none.
  RunningGroup* LastRunning();

  int num_running() const;
  // Sums over running groups: worst-case needs of a step, and pages that they
  // take soon.
  RequestNeeds Needs() const;
  int64_t NumPagesSoon() const;

  // Error of groups that lack memory. Allocated in advance.
  const absl::Status& out_of_memory() const { return out_of_memory_; }

  // Drops the group, counts its end and calls `done`. The group stays in place
  // until EraseDone. Does not throw.
  void Finish(RunningGroup& running, absl::StatusOr<Result> result);
  // As Finish, with the group's best result so far. REQUIRES: it has output.
  void FinishEarly(RunningGroup& running, FinishReason reason);
  void EraseDone() {
    if (std::exchange(has_done_groups_, false)) EraseDoneGroups();
  }

  // The next plan collects forks of sequences and ended ones, from results and
  // ends. TakeNextPlan leaves an empty one.
  StepPlan* next_plan() { return &next_plan_; }
  const StepPlan& next_plan() const { return next_plan_; }
  StepPlan TakeNextPlan();
  // Returns the plan that names the ended group; null if none has named it yet.
  StepPlan* EndsOf(const RunningGroup& running) {
    return running.is_known ? &next_plan_ : nullptr;
  }

  // Adds the demand of a group whose result was applied.
  void AddDemand(const SequenceGroup& group) { demand_.Add(group); }
  // Discards the demand collected so far.
  void ResetDemand() { demand_ = {}; }
  // Returns the demand of all groups: the demand collected since the last call
  // and the last end of a group, if it covers all groups, which are in the
  // cache then. Otherwise FindDemand visits all groups.
  StepDemand TakeDemand();
  StepDemand FindDemand() const;

  // Shares pages of the prefix tree with the group's next tokens, and loads
  // pages from host memory. `num_promised` pages are reserved for groups before
  // it. Throws std::bad_alloc.
  void MatchPrefix(RunningGroup& running, int64_t num_promised, StepPlan* plan);
  // The plan being written changes some group when it is sent: it names it for
  // the first time, or may copy or load its pages.
  void MarkChanged() { is_any_changed_ = true; }
  // Called when a plan is sent.
  void OnPlanOut() {
    if (std::exchange(is_any_changed_, false)) ChangeGroups();
  }

 private:
  RunningGroup* Search(RequestId id);
  void EraseDoneGroups();
  void ChangeGroups();

  const bool validate_;
  const absl::Status out_of_memory_;
  TimedStats* const counts_;
  SequenceIdSource sequence_ids_;  // outlives the groups
  std::vector<RunningGroup> groups_;
  size_t found_ = 0;  // index after the last one found
  bool has_done_groups_ = false;
  bool is_any_changed_ = false;
  // Demand of the groups whose results were applied. Complete if num_groups
  // equals the number of groups.
  StepDemand demand_;
  StepPlan next_plan_;
};

}  // namespace espalier
