#include "batcher/scheduler/running_groups.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/memory.h"
#include "base/status.h"

namespace espalier {

void RunningGroup::Preempt(const PageSaving& saving, StepPlan* plan) {
  group->Preempt(saving, is_known, plan);
  is_known = false;
}

RunningGroups::RunningGroups(const SchedulerOptions& options,
                             TimedStats* counts)
    : validate_(options.validate_steps),
      out_of_memory_(ResourceExhausted(
          "not enough memory on the host for the request's next step")),
      counts_(counts) {}

void RunningGroups::ReserveOne() {
  if (groups_.size() == groups_.capacity()) {
    groups_.reserve(2 * groups_.size() + 1);
  }
}

RunningGroup& RunningGroups::Add(RunningGroup group) {
  const auto at = std::upper_bound(
      groups_.begin(), groups_.end(), group.turn,
      [](const Turn& turn, const RunningGroup& g) { return turn < g.turn; });
  return *groups_.insert(at, std::move(group));
}

void RunningGroups::EraseDoneGroups() {
  std::erase_if(groups_, [](const RunningGroup& g) { return g.group->done(); });
  found_ = std::min(found_, groups_.size());
}

RunningGroup* RunningGroups::Search(RequestId id) {
  const size_t count = groups_.size();
  for (size_t i = 0; i < count; ++i) {
    if (found_ >= count) found_ = 0;
    RunningGroup& running = groups_[found_++];
    if (running.id != id) continue;
    return running.group->done() ? nullptr : &running;
  }
  return nullptr;
}

RunningGroup* RunningGroups::FirstPreempted() {
  const auto found =
      std::find_if(groups_.begin(), groups_.end(),
                   [](const RunningGroup& g) { return g.is_preempted(); });
  return found == groups_.end() ? nullptr : &*found;
}

RunningGroup* RunningGroups::LastRunning() {
  const auto found =
      std::find_if(groups_.rbegin(), groups_.rend(),
                   [](const RunningGroup& g) { return !g.is_preempted(); });
  return found == groups_.rend() ? nullptr : &*found;
}

int RunningGroups::num_running() const {
  return static_cast<int>(
      std::count_if(groups_.begin(), groups_.end(),
                    [](const RunningGroup& g) { return !g.is_preempted(); }));
}

RequestNeeds RunningGroups::Needs() const {
  RequestNeeds total;
  for (const RunningGroup& running : groups_) {
    if (!running.is_preempted()) total += running.needs;
  }
  return total;
}

int64_t RunningGroups::NumPagesSoon() const {
  int64_t total = 0;
  for (const RunningGroup& running : groups_) {
    total += running.group->NumPagesSoon();
  }
  return total;
}

void RunningGroups::Finish(RunningGroup& running,
                           absl::StatusOr<Result> result) {
  UntilThereIsMemory([&] {
    running.group->WithdrawMoves(&next_plan_);
    running.group->Drop(EndsOf(running));
  });
  IfThereIsMemory([&] { running.group->RecordEnd(result); });
  if (result.ok()) {
    result->weights_version = running.weights_version;
    counts_->stats.num_generated_tokens += result->usage.num_generated_tokens;
    running.times.OnEnd(counts_->now, &counts_->stats);
  }
  counts_->stats.CountEnd(result);
  running.done(std::move(result));
  has_done_groups_ = true;
  ResetDemand();
}

void RunningGroups::FinishEarly(RunningGroup& running, FinishReason reason) {
  absl::StatusOr<Result> result = out_of_memory_;
  IfThereIsMemory([&] {
    SequenceGroup& group = *running.group;
    group.WithdrawMoves(&next_plan_);
    group.FinishEarly(reason, EndsOf(running));
    if (running.watcher != nullptr) {
      running.watcher->OnFinishEarly(group.strategy());
    }
    result = group.TakeResult();
  });
  Finish(running, std::move(result));
}

StepPlan RunningGroups::TakeNextPlan() {
  return UntilThereIsMemory(
      [this] { return std::exchange(next_plan_, StepPlan()); });
}

StepDemand RunningGroups::TakeDemand() {
  const StepDemand demand = std::exchange(demand_, {});
  if (demand.num_groups != std::ssize(groups_)) return FindDemand();
  if (validate_) {
    CHECK(demand == FindDemand()) << "groups have changed since their answer";
  }
  return demand;
}

StepDemand RunningGroups::FindDemand() const {
  StepDemand demand;
  for (const RunningGroup& running : groups_) {
    demand.Add(*running.group);
  }
  return demand;
}

void RunningGroups::MatchPrefix(RunningGroup& running, int64_t num_promised,
                                StepPlan* plan) {
  MarkChanged();
  const PrefillCounts before = running.group->prefill_counts();
  running.group->MatchPrefix(num_promised, plan);
  const PrefillCounts& after = running.group->prefill_counts();
  SchedulerStats& stats = counts_->stats;
  stats.num_cached_tokens += after.num_cached - before.num_cached;
  stats.num_tokens_shared_again +=
      after.num_shared_again - before.num_shared_again;
  stats.num_tokens_loaded_again +=
      after.num_loaded_again - before.num_loaded_again;
}

void RunningGroups::ChangeGroups() {
  for (RunningGroup& running : groups_) {
    running.is_known = running.is_known || running.group->was_planned();
    running.group->OnPlanOut();
  }
}

}  // namespace espalier
