#include "tests/batcher/toy_requests.h"
#include "tests/sim/simulation_run.h"

namespace espalier::testing {

void Simulation::OnDone(RequestId id, const absl::StatusOr<Result>& result) {
  const auto found = live_.find(id);
  if (found == live_.end()) return Fail("request ", id, " is answered twice");
  const LiveRequest live = found->second;
  live_.erase(found);
  Hash(id.value * 31 + static_cast<int>(result.status().code()));
  if (expires_) return CheckAtDeadline(id, live, result);
  if (result.ok()) return CheckResult(id, live, result);
  const std::string fault = CheckError(id, live, result.status());
  if (fault.empty()) {
    report_.figures.num_cancelled += absl::IsCancelled(result.status());
    report_.figures.num_refused += submitted_ == id;
    return;
  }
  if (result.status() == Alone(live.kind).status()) {
    ++report_.figures.num_results;
    return;
  }
  Fail("request ", id, " ended with ", result.status().ToString(), ": ", fault);
}

std::string Simulation::CheckError(RequestId id, const LiveRequest& live,
                                   const absl::Status& status) const {
  if (submitted_ == id) {
    const bool is_refused =
        absl::IsResourceExhausted(status) &&
        NumPagesOf(case_, case_.requests[live.kind]) > case_.model.num_pages;
    return is_refused ? "" : "it fits";
  }
  if (absl::IsCancelled(status)) {
    return cancelled_.count(id) > 0 ? "" : "nobody cancelled it";
  }
  if (answered_ == nullptr) return "no step is answered";
  if (!answered_->result.ok()) {
    if (status != answered_->result.status()) return "the step says otherwise";
    return id < answered_->first_after ? "" : "it came after the step";
  }
  if (answered_->is_cut)
    return absl::IsInternal(status) ? "" : "nobody said so";
  return answered_->wrong_answer == id ? "" : "its answer was right";
}

void Simulation::CheckResult(RequestId id, const LiveRequest& live,
                             const absl::StatusOr<Result>& result) {
  ++report_.figures.num_results;
  const absl::StatusOr<Result>& alone = Alone(live.kind);
  if (!alone.ok()) {
    return Fail("request ", id, " has a result; alone it has ",
                alone.status().ToString());
  }
  const bool is_same = case_.requests[live.kind].params.speculate
                           ? SameHypotheses(*result, *alone)
                           : SameResult(*result, *alone);
  if (!is_same) {
    return Fail("request ", id, " of kind ", live.kind,
                " has another result than alone");
  }
  const Usage& usage = result->usage;
  Hash(usage.num_cached_tokens);
  report_.figures.num_cached_tokens += usage.num_cached_tokens;
  report_.figures.num_accepted_tokens += usage.num_accepted_tokens;
  const int64_t most = live.may_share ? usage.num_prompt_tokens - 1 : 0;
  if (usage.num_cached_tokens < 0 || usage.num_cached_tokens > most) {
    Fail("request ", id, " has ", usage.num_cached_tokens,
         " cached tokens, there can be ", most);
  }
}

void Simulation::CheckAtDeadline(RequestId id, const LiveRequest& live,
                                 const absl::StatusOr<Result>& result) {
  if (!live.deadline || *live.deadline > now_) {
    return Fail("request ", id, " ends before its deadline");
  }
  std::string fault;
  if (result.ok()) {
    ++report_.figures.num_early_results;
    const bool fails_alone = !Alone(live.kind).ok();
    fault =
        CheckBestSoFar(case_.requests[live.kind].params, *result,
                       states_alone_[live.kind], fails_alone, live.num_decided);
  } else {
    ++report_.figures.num_too_late;
    if (!absl::IsDeadlineExceeded(result.status())) {
      fault = result.status().ToString();
    } else if (live.num_decided > 0) {
      fault = "it has tokens";
    }
  }
  if (!fault.empty()) Fail("request ", id, " at its deadline: ", fault);
}

const absl::StatusOr<Result>& Simulation::Alone(int kind) {
  std::optional<absl::StatusOr<Result>>& alone = alone_[kind];
  if (!alone) {
    alone =
        SimulateAlone(case_, case_.requests[kind],
                      std::make_unique<StatesWatcher>(&states_alone_[kind]));
  }
  return *alone;
}

// Checks that an admitted request has its turn before all that still wait; with
// tenants, before all of its own tenant and priority.
void Simulation::CheckAdmissions() {
  if (log_ == nullptr) return;
  for (const RequestId id : log_->Take()) {
    const auto admitted = live_.find(id);
    if (admitted == live_.end()) continue;
    admitted->second.is_admitted = true;
    for (const auto& [other, live] : live_) {
      if (live.is_admitted || admitted->second.turn < live.turn) continue;
      if (live.tenant != admitted->second.tenant ||
          (case_.num_tenants > 1 &&
           live.priority != admitted->second.priority)) {
        continue;
      }
      Fail("request ", id, " is admitted before request ", other,
           ", whose turn comes first");
    }
  }
}

void Simulation::CheckFirst() {
  const auto first = std::min_element(live_.begin(), live_.end(),
                                      [](const auto& a, const auto& b) {
                                        return a.second.turn < b.second.turn;
                                      });
  if (first == live_.end()) return;
  const int64_t num_steps = ++first->second.num_steps_as_first;
  // It may give its turn to other tenants, but has its share.
  const int64_t most = max_steps_as_first_ * (case_.num_tenants > 1 ? 4 : 1);
  report_.figures.max_first_share =
      std::max(report_.figures.max_first_share,
               static_cast<double>(num_steps) / static_cast<double>(most));
  if (num_steps <= most) return;
  Fail("request ", first->first, " starves: ", num_steps,
       " steps as the first by turn");
}

void Simulation::CheckEnd() {
  const Scheduler& scheduler = *scheduler_;
  const PagePool& pool = scheduler.pool();
  const int num_cached = scheduler.tree().num_pages();
  if (!live_.empty()) Fail(live_.size(), " requests have no answer");
  if (scheduler.num_waiting() != 0 || scheduler.num_running() != 0 ||
      scheduler.num_preempted() != 0) {
    Fail("requests are left in the scheduler");
  }
  if (pool.num_held() != num_cached || pool.num_idle() != num_cached) {
    Fail("in the end ", pool.num_held(), " pages are held and ",
         pool.num_idle(), " are idle; the tree has ", num_cached);
  }
  if (scheduler.host_pool().num_held() != 0) {
    Fail("in the end ", scheduler.host_pool().num_held(),
         " host slots are held");
  }
  if (!scheduler.tree().FillingPages().empty()) Fail("pages are being filled");
  if (groups_.num_groups() != 0 || (drafter_ && drafter_->num_groups() != 0)) {
    Fail("the executor knows groups");
  }
  if (model_.num_sequences() != 0) Fail("the model knows sequences");
  if (draft_ != nullptr &&
      (draft_->num_sequences() != 0 || draft_->pages().num_held() != 0)) {
    Fail("the draft model knows sequences");
  }
}

}  // namespace espalier::testing
