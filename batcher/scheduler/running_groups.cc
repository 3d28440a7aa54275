#include "batcher/scheduler/running_groups.h"

#include <algorithm>
#include <utility>

namespace espalier {

void RunningGroup::Preempt(const PageSaving& saving, StepPlan* plan) {
  group->Preempt(saving, is_known, plan);
  is_known = false;
}

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

void RunningGroups::EraseDone() {
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

}  // namespace espalier
