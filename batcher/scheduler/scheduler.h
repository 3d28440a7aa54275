// Scheduler: chooses the requests that run in the next step. It holds every
// request of an engine, writes step plans and applies their results. It has no
// threads, clocks or I/O, so that continuous batching can be tested step by
// step.
//
// Its caller passes the time for deadlines (ExpireDeadlines).
//
// A request waits for its turn (Turn: priority, then arrival), is admitted when
// its prompt and first steps fit beside the others (admission.h), feeds its
// prompt in chunks, decodes, and ends. It joins and leaves at any step, and its
// result does not depend on the others.
//
// Each plan has a budget of tokens. All live beams come first, then prompts of
// running requests, then waiting requests, in order of their turns. Within one
// tenant and priority the order is first come, first served. An urgent request
// overtakes earlier ones, and tenants share the turns of a priority
// (fair_turns.h). If the beams leave prompts less than their share, some steps
// are for prompts alone.
//
// Before a plan is written, room is made for it: while it lacks pages, the
// group with the last turn is preempted as a whole. It resumes at its turn,
// before waiting requests, and loads from host memory or recomputes the tokens
// that the prefix tree has lost (beam/pages/group_prefill.h). The preempting
// plan decides which pages go to host memory (saving_policy.h).
//
// If memory runs out, the affected requests end with kResourceExhausted, and
// the others continue: the request whose result cannot be applied, or all
// running ones if their plan cannot be written. Only Submit throws
// std::bad_alloc; it has not taken the request then.
//
// If all groups decode, a step allocates the vectors of its plan and of its
// record, a dozen blocks whatever the number of groups. A group of up to four
// sequences (base/small_vector.h) allocates only blocks of its token tree, and
// page tables, which grow by doubling.
//
// The parts, each of which owns its data: waiting requests and the choice of
// the next one (admission.h), admitted groups and their ends
// (running_groups.h), pages for a plan (preemption.h), its groups
// (step_planner.h) and their rows (plan_writer.h), records of the plans that an
// executor has (plans_in_flight.h), and their results (result_applier.h). The
// scheduler owns the pages, the deadlines and the counters, and connects them.
//
// A scheduler belongs to one strand. Results come in the order of plans. Plan
// and Advance alternate. For executors that support continuations
// (step_plan.h), Plan is called again while results are outstanding. Then
// prompts continue, groups that can run one step ahead of their last result do
// so, and the others join again when their result has arrived.
//
//   scheduler.Submit(id, PreparedRequest(request), done);
//   for (StepPlan plan; !(plan = scheduler.Plan()).empty();) {
//     scheduler.Advance(Run(plan));  // calls done, sooner or later
//   }
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "batcher/scheduler/admission.h"
#include "batcher/scheduler/deadlines.h"
#include "batcher/scheduler/plans_in_flight.h"
#include "batcher/scheduler/preemption.h"
#include "batcher/scheduler/result_applier.h"
#include "batcher/scheduler/running_groups.h"
#include "batcher/scheduler/scheduler_options.h"
#include "batcher/scheduler/scheduler_stats.h"
#include "batcher/scheduler/step_planner.h"
#include "batcher/scheduler/timed_stats.h"
#include "batcher/scheduler/waiting_requests.h"
#include "beam/prepared_request.h"
#include "beam/sequence_group.h"
#include "beam/strategy/search_watcher.h"
#include "exec_request/model.h"
#include "exec_request/step_plan.h"
#include "pages/host_pool.h"
#include "pages/page_pool.h"
#include "pages/prefix_tree.h"
#include "request/request.h"

namespace espalier {

class Scheduler {
 public:
  // Called once per request, on the strand, within Submit, Advance, Cancel,
  // CancelAll or ExpireDeadlines. It must not call the scheduler.
  using Done = std::function<void(absl::StatusOr<Result>)>;

  // With `async_scheduling` the caller requests plans while others run.
  // REQUIRES: CheckDescription and CheckOptions return OK.
  Scheduler(const ModelDescription& model, const SchedulerOptions& options,
            bool async_scheduling = false);
  // Drops the requests that it still holds, without calling `done`.
  ~Scheduler();

  // Takes a request. A request that can never fit ends at once with
  // kResourceExhausted and its sizes, and with kTooFewPages if it lacks pages.
  // `watcher`, unless null, is called after each step, before `done`.
  // REQUIRES: `id` was never used before.
  void Submit(RequestId id, PreparedRequest prepared, Done done,
              std::unique_ptr<SearchWatcher> watcher = nullptr);

  // Returns the next step. It is empty if no request can run, which may be
  // because lists of legal tokens are awaited (OnListed); it may then still
  // name ended sequences, for executors that keep state, unless results are
  // outstanding. A plan that is_noop() has no result.
  StepPlan Plan();

  // Applies the result of the oldest plan without one. An error ends only the
  // requests of that plan; so does a result with missing or reordered entries.
  // A selection result that does not fit its selection (beam/validate_result.h)
  // ends only its request. Results of ended requests are dropped.
  // REQUIRES: a result is outstanding.
  void Advance(absl::StatusOr<StepResult> result);

  // As ResultApplier::MakeListsBy. OnListed: the lists of a group's ListWork
  // are made. Does nothing if the group waits for these no more.
  void MakeListsBy(std::function<void(ListWork)> make) {
    applier_.MakeListsBy(std::move(make));
  }
  void OnListed(RequestId id, const std::weak_ptr<const void>& is_awaited);

  // Ends the request with `why` and releases its pages, at any moment, even
  // between Plan and Advance: executors run plans in order, so a page may be
  // reused while an earlier plan uses it. Does nothing if the request neither
  // waits nor runs. The cost does not depend on the number of waiting requests.
  void Cancel(RequestId id, const absl::Status& why);
  void CancelAll(const absl::Status& why);

  // As CancelAll, of the requests that have started.
  void CancelRunning(const absl::Status& why);

  // While it does not admit, running requests end, and no other starts.
  void SetAdmits(bool admits) { admission_.SetOpen(admits); }
  // Called between steps: later ones have other weights. Empties the prefix
  // cache for good: requests that run add no pages any more. `version`: of the
  // requests that start from now on (Result::weights_version).
  void SetWeightsVersion(int64_t version);

  // Ends the requests whose deadline (GenerationParams::deadline_ms from
  // PreparedRequest::submitted) has passed, at any moment, as Cancel does: with
  // the best result so far or, before the first token, with kDeadlineExceeded
  // and the reason of the wait. O(log n) each.
  void ExpireDeadlines(Deadlines::Time now);
  // Returns the earliest deadline.
  std::optional<Deadlines::Time> first_deadline() const {
    return deadlines_.first();
  }

  // Releases cached pages that no request holds, and removes the others from
  // the cache. Returns the number of cached pages.
  int ResetPrefixCache() {
    const int num_pages = tree_.num_pages();
    tree_.Clear();
    return num_pages;
  }

  int num_waiting() const { return admission_.waiting().size(); }
  int num_running() const { return groups_.num_running(); }
  // Admitted and then preempted to make room.
  int num_preempted() const {
    return static_cast<int>(groups_.size()) - groups_.num_running();
  }
  bool runs_requests() const { return !groups_.empty(); }
  bool holds_requests() const {
    return !admission_.waiting().empty() || !groups_.empty();
  }
  const PagePool& pool() const { return pool_; }
  const HostPool& host_pool() const { return host_pool_; }
  const PrefixTree& tree() const { return tree_; }
  const SchedulerStats& stats() const { return counts_.stats; }
  // Adds the present counts of requests, rows and pages. Visits all running
  // groups, so it is for monitoring, not for every step.
  void CountNow(SchedulerGauges* now) const;

  // Sets the time, in nanoseconds since any origin, for the times in stats()
  // alone; 0 until the first call.
  void SetTime(int64_t now) { counts_.now = now; }

 private:
  // Adds the plan to those in flight. Throws std::bad_alloc; then Plan calls
  // AbandonPlan.
  void Remember(const StepPlan& plan);
  // Discards `plan` and ends all running groups with `why`. The next plan names
  // the sequences that ended before.
  void AbandonPlan(StepPlan plan, const absl::Status& why);
  void EndWaiting(const WaitingRequest& waiting, const absl::Status& why);
  // Counts the running step, when all earlier results have arrived.
  void CountStep();
  void Validate(const StepPlan& plan) const;

  // Constant after construction.
  const SchedulerOptions options_;

  TimedStats counts_;
  // The pages outlive the groups that use them; the tree uses the pool.
  PagePool pool_;
  PrefixTree tree_;
  HostPool host_pool_;
  Deadlines deadlines_;  // before the requests, which hold entries
  RunningGroups groups_;
  Admission admission_;
  PlansInFlight in_flight_;
  int64_t num_plans_ = 0;  // without empty ones
  Preemption preemption_;
  StepPlanner planner_;
  ResultApplier applier_;
};

}  // namespace espalier
