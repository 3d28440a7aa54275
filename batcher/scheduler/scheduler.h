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

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "batcher/scheduler/admission.h"
#include "batcher/scheduler/deadlines.h"
#include "batcher/scheduler/plan_sizes.h"
#include "batcher/scheduler/plans_in_flight.h"
#include "batcher/scheduler/running_groups.h"
#include "batcher/scheduler/saving_policy.h"
#include "batcher/scheduler/scheduler_options.h"
#include "batcher/scheduler/scheduler_stats.h"
#include "batcher/scheduler/step_costs.h"
#include "beam/pages/sequence.h"
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

  // Returns the next step. It is empty if no request can run; it may then still
  // name ended sequences, for executors that keep state, unless results are
  // outstanding. A plan that is_noop() has no result.
  StepPlan Plan();

  // Applies the result of the oldest plan without one. An error ends only the
  // requests of that plan; so does a result with missing or reordered entries.
  // A selection result that does not fit its selection (beam/validate_result.h)
  // ends only its request. Results of ended requests are dropped.
  // REQUIRES: a result is outstanding.
  void Advance(absl::StatusOr<StepResult> result);

  // Ends the request with `why` and releases its pages, at any moment, even
  // between Plan and Advance: executors run plans in order, so a page may be
  // reused while an earlier plan uses it. Does nothing if the request neither
  // waits nor runs. The cost does not depend on the number of waiting requests.
  void Cancel(RequestId id, const absl::Status& why);
  void CancelAll(const absl::Status& why);

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

  int num_waiting() const { return waiting_.size(); }
  int num_running() const { return groups_.num_running(); }
  // Admitted and then preempted to make room.
  int num_preempted() const {
    return static_cast<int>(groups_.size()) - groups_.num_running();
  }
  bool holds_requests() const { return !waiting_.empty() || !groups_.empty(); }
  const PagePool& pool() const { return pool_; }
  const HostPool& host_pool() const { return host_pool_; }
  const PrefixTree& tree() const { return tree_; }
  const SchedulerStats& stats() const { return stats_; }
  // Adds the present counts of requests, rows and pages. Visits all running
  // groups, so it is for monitoring, not for every step.
  void CountNow(SchedulerGauges* now) const;

  // Sets the time, in nanoseconds since any origin, for the times in stats()
  // alone; 0 until the first call.
  void SetTime(int64_t now) { now_ = now; }

 private:
  // Counts of what a plan feeds.
  struct PlanCounts {
    int64_t num_prompt_tokens = 0;
    // Included: padding after sources, and decoder prompts.
    int64_t num_after_sources = 0;
    int64_t num_fed_again = 0;
    int64_t num_decode_sequences = 0;
    int64_t num_sequences_ahead = 0;  // in continuations with drafts, at most
    int num_decode_groups = 0;        // without drafts
    int64_t num_draft_tokens_fed = 0;
    int64_t num_draft_pages = 0;
  };

  // Remaining room of a step.
  struct Budget {
    int num_tokens = 0;
    int num_logits = 0;  // rows
    int num_prefill_rows = 0;
    DraftRoom drafts = {};
    bool is_used_up() const { return num_tokens < 1 || num_logits < 1; }
  };

  // Demand of the running groups for the next step.
  struct Demand {
    // is_any_schedulable: a group can run ahead of its result or feed its
    // prompt. may_any_draft_ahead: a group can run ahead if its drafts fit. If
    // no group can be scheduled now, groups whose result has arrived wait for
    // the rest: one shared step costs less than two.
    bool is_any_schedulable = false;
    bool may_any_draft_ahead = false;
    bool is_any_prefilling = false;
    bool is_any_scoring = false;  // continuations, or a prompt alone
    bool may_any_draft = false;
    bool is_any_preempted = false;
    int num_groups = 0;
    int num_idle = 0;  // groups that cannot decode now
    // Beams that feed; a group that runs ahead may have fewer.
    int num_decode_rows = 0;
    // Upper bound of pages beyond one for each of these rows, for groups that
    // run ahead.
    int64_t num_pages_ahead = 0;

    // Upper bound of pages for decoding groups.
    int64_t max_decode_pages() const {
      return num_decode_rows + num_pages_ahead;
    }
    void Add(const SequenceGroup& group, bool drafts_ahead);
    friend bool operator==(const Demand&, const Demand&) = default;

   private:
    void AddAny(const SequenceGroup& group, bool drafts_ahead);
  };
  // TakeDemand returns the demand collected while results were applied, if
  // these covered all running groups, which are in the cache then. Otherwise it
  // calls FindDemand, which visits all groups.
  Demand TakeDemand();
  Demand FindDemand() const;
  // Throws std::bad_alloc or an error of the plan; then Plan calls AbandonPlan.
  void WritePlan(StepPlan* plan);
  void FillPlan(bool decodes, const Demand& demand, StepPlan* plan);
  // Discards `plan` and ends all running groups with `why`. The next plan names
  // the sequences that ended before.
  void AbandonPlan(StepPlan plan, const absl::Status& why);
  // True if it is the prompts' turn to have a step alone.
  bool IsForPrefillAlone(const Demand& demand);
  // NumAskedIn: rows of logits that must be left for the next `num_tokens` of a
  // group that feeds its prompt. NeedsRowsOf: true if a step with
  // `num_decode_rows` decoding beams leaves some group too few.
  int NumAskedIn(const SequenceGroup& group, int num_tokens) const;
  bool NeedsRowsOf(int num_decode_rows) const;
  // Preempts groups until all pages for PlanGroup are available, and shares
  // prefixes.
  struct Room {
    int64_t num_pages = 0;          // for PlanGroup
    int64_t num_prefill_pages = 0;  // included: pages for prefill
    bool was_made = false;          // some group was preempted
  };
  Room MakeRoom(bool decodes, StepPlan* plan);
  // Returns the room for drafts of a step that takes `taken` pages. Prompts
  // that wait to be fed keep their share of the tokens, at least one. Drafts
  // leave the pages of a request that would be admitted without them.
  DraftRoom RoomForDrafts(const Room& taken);
  // Shares pages of the prefix tree with the group's next tokens, and loads
  // pages from host memory. `num_promised` pages are reserved for groups before
  // it.
  void MatchPrefix(RunningGroup& running, int64_t num_promised, StepPlan* plan);
  // Returns the pages that the group takes in this plan.
  int64_t NumPagesNow(const RunningGroup& running, bool decodes) const;
  // True if the budget has room for the group's next rows.
  bool HasRoomFor(const SequenceGroup& group, const Budget& budget) const;
  // Parts of FillPlan: groups that can decode, with or without drafts; and
  // groups that feed their prompts.
  void PlanDecodes(StepPlan* plan, Budget* budget);
  void PlanPrefills(StepPlan* plan, Budget* budget);
  // True if a group that must draft to run ahead has room for that;
  // CanAnyDraftAhead: if any group does.
  bool CanDraftAhead(const SequenceGroup& group, const DraftRoom& room) const;
  bool CanAnyDraftAhead();
  // Adds the next work of a group: a chunk of its prompt, or tokens that may
  // have drafts; PlanDecode: tokens alone, for several groups.
  void PlanGroup(RunningGroup& running, StepPlan* plan, Budget* budget);
  void PlanPrefill(RunningGroup& running, StepPlan* plan, Budget* budget);
  void PlanDrafting(RunningGroup& running, StepPlan* plan, Budget* budget);
  void PlanDecode(std::span<RunningGroup> groups, StepPlan* plan,
                  Budget* budget);
  // Calls SequenceGroup::PlanStep, and subtracts its rows from the budget.
  void PlanRows(RunningGroup& running, StepPlan* plan, Budget* budget);
  // Subtract from the budget: drafts of one group that the step verifies; and
  // drafts that it requests of a draft model for later verification.
  void CountDrafts(int num_drafted, int num_logits, int64_t num_pages,
                   Budget* budget);
  void CountAsked(const SequenceGroup& group,
                  std::span<const DraftSequence> asked, Budget* budget);
  // Admits resuming groups and waiting requests, by turn.
  void Admit(StepPlan* plan, Budget* budget);
  bool AdmitNext(StepPlan* plan, Budget* budget);
  // Returns null if the request ended for lack of memory.
  RunningGroup* Start(WaitingRequest next);
  // Returns the group that resumes before any request starts; null if there is
  // none.
  RunningGroup* NextToResume();
  // Returns the pages that must be available for that group, or else the
  // request with the first turn, to run now: what it takes until it decodes,
  // beside what running groups take soon. Unset if this exceeds
  // `num_available`, if it may not run for another reason, or if there is none.
  std::optional<int64_t> NumPagesForNext(int64_t num_available);
  bool NextFits() { return NumPagesForNext(pool_.num_available()).has_value(); }
  // As above, for a request that takes `num_pages` until it decodes, minus the
  // pages of its prompt that it can share.
  std::optional<int64_t> NumPagesFor(const RequestNeeds& needs,
                                     int64_t num_pages, const Request& request,
                                     int64_t num_available);
  void Remember(const StepPlan& plan);
  // Adds to planned_ the groups whose only work in this plan is copies or
  // loads, because the token budget ran out. They fail with the plan.
  void AddMovers();
  // Removes the saves from the plan being written: their tokens are recomputed.
  void DropSaves(StepPlan* plan);
  // Records if the plan has saved the pages of its requests.
  void AnswerSaves(const PlanInFlight& plan, bool are_saved);
  void RecordCosts(const PlanInFlight& plan, const StepResult& result);
  void TakeScoring(const PromptLogprobsResult& result, size_t num_tokens);
  // Ends those of the plan's requests that only score and have all their
  // scores.
  void FinishScored(const PlanInFlight& plan);
  void TakeDrafts(const PlanInFlight& plan, std::span<DraftedTokens> drafts);
  // `answers_plan`: the groups have no other results in the plan.
  void AdvanceGroups(std::span<const SelectionResult> results,
                     bool answers_plan);
  void Advance(RunningGroup& running, const SelectionResult& result);
  // SequenceGroup::ApplyResult for a group that may have drafts.
  absl::Status AdvanceDrafting(RunningGroup& running,
                               const SelectionResult& result);
  void Finish(RunningGroup& running, absl::StatusOr<Result> result);
  void EraseDone();
  void CountEnd(const absl::StatusOr<Result>& result);
  void FinishAtDeadline(RunningGroup& running);
  // Counts the running step, when all earlier results have arrived.
  void CountStep();
  void Validate(const StepPlan& plan) const;

  // Constant after construction.
  const SchedulerOptions options_;
  const bool async_scheduling_;
  const int vocab_size_;
  const int max_logits_;              // per step
  const int max_prefill_rows_;        // per step
  const absl::Status out_of_memory_;  // allocated in advance

  PagePool pool_;    // before the tree, and all three before the groups,
  PrefixTree tree_;  // which use them
  HostPool host_pool_;
  const bool has_shareable_pages_;
  const bool verifies_beam_drafts_;
  const int max_draft_context_;
  const bool drafts_before_steps_;
  const bool drafts_ahead_;
  const Admission admission_;
  SequenceIdSource sequence_ids_;
  Deadlines deadlines_;  // before the requests, which hold entries
  WaitingRequests waiting_;
  RunningGroups groups_;
  int64_t prefill_debt_ = 0;  // tokens that prompts lack of their share
  bool was_for_prefill_alone_ = false;
  int64_t num_plans_ = 0;           // without empty ones
  bool may_admit_ = true;           // in the plan being written
  StepPlan next_plan_;              // accumulates forks and ended sequences
  PlanSizes last_sizes_;            // sizes of the last plan that was not empty
  std::vector<RequestId> planned_;  // requests of the plan being written
  std::vector<RequestId> saved_;    // requests whose pages it saves
  PlanCounts planned_counts_;       // without plain continuations
  // True if the plan changes some group when it is sent: it names it for the
  // first time, or may copy or load its pages.
  bool changes_groups_ = false;
  bool has_done_groups_ = false;
  // Demand of the groups whose results were applied since the last plan and the
  // last end of a group. Complete if num_groups equals the number of groups.
  Demand demand_;
  PlansInFlight in_flight_;
  StepCosts costs_;
  int num_decode_sequences_ = 1;  // in the last step that had any
  SavingPolicy saving_policy_;
  SchedulerStats stats_;
  int64_t now_ = 0;
};

inline void Scheduler::Demand::Add(const SequenceGroup& group,
                                   bool drafts_ahead) {
  ++num_groups;
  // The common case: it decodes, and no result is outstanding.
  if (group.prefilling() || group.outstanding() || group.speculates() ||
      group.only_scores() || group.is_preempted()) {
    return AddAny(group, drafts_ahead);
  }
  num_decode_rows += group.num_live_beams();
}

}  // namespace espalier
