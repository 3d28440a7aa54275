// RunningGroups: the admitted groups that have not ended, by turn. A group
// runs, holding pages, or is preempted: it has released them to make room for
// others, and resumes at its turn (SequenceGroup::Preempt).
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
  void EraseDone();

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

 private:
  RunningGroup* Search(RequestId id);

  std::vector<RunningGroup> groups_;
  size_t found_ = 0;  // index after the last one found
};

}  // namespace espalier
