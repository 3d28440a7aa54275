// Scheduler: which requests run in the next step. It holds every request of an
// engine, writes step plans and applies their results; plain state without
// threads, clocks or I/O, so that continuous batching can be tested step by
// step.
//
// The time that deadlines need comes from its caller (ExpireDeadlines).
//
// A request waits for its turn (Turn: priority, then arrival), is admitted when
// its prompt and first steps fit beside the others (admission.h), feeds its
// prompt in chunks, decodes, and is answered. It joins and leaves at any step,
// and nothing about its result depends on the others.
//
// Each plan has a budget of tokens. Live beams come first, every one of them;
// then prompts of running requests, then those that wait, in order of their
// turns. Of one tenant and priority none overtakes another; an urgent request
// overtakes those that came before it, and tenants share the turns of a
// priority (fair_turns.h). Where the beams leave prompts less than their share,
// some steps are for prompts alone.
//
// Before a plan is written, room is made for it: while its pages are not
// available, the group whose turn comes last is preempted, as a whole. It
// resumes at its turn, before others that wait, and loads from host memory or
// feeds again what is not in the prefix tree any more
// (beam/pages/group_prefill.h). Which of its pages go to host memory the plan
// that preempts it decides (saving_policy.h).
//
// Where memory runs out the requests that it was for end with
// kResourceExhausted, and the others go on: one whose answer cannot be applied,
// or all that run where a plan of theirs cannot be written. Submit alone throws
// std::bad_alloc, and has not taken the request then.
//
// Where all groups decode, a step allocates the vectors of its plan and of what
// is remembered of it, a dozen blocks however many groups run, and nothing for
// a group of up to four sequences (base/small_vector.h) but blocks of its token
// tree, and page tables, which grow by doubling.
//
// A scheduler belongs to one strand. Results come in the order of plans. Plan
// and Advance alternate; or, for executors that take continuations
// (step_plan.h), Plan is called again while plans are not answered. Then
// prompts are fed on, groups go one step ahead of their last answer if they
// can, and those that cannot join again when it is there.
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
#include "beam/beam_group.h"
#include "beam/pages/sequence.h"
#include "beam/prepared_request.h"
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
  // Called once a request, on the strand, from within Submit, Advance, Cancel,
  // CancelAll or ExpireDeadlines. It must not call the scheduler.
  using Done = std::function<void(absl::StatusOr<Result>)>;

  // With `async_scheduling` the caller asks for plans while others run.
  // REQUIRES: CheckDescription and CheckOptions find both right.
  Scheduler(const ModelDescription& model, const SchedulerOptions& options,
            bool async_scheduling = false);
  // Drops what it still holds without an answer.
  ~Scheduler();

  // Takes a request. One that can never fit is answered at once with
  // kResourceExhausted and the figures, and with kTooFewPages if it lacks
  // pages. `watcher`, if not null, is called after each step, before `done`.
  // REQUIRES: `id` was never used before.
  void Submit(RequestId id, PreparedRequest prepared, Done done,
              std::unique_ptr<SearchWatcher> watcher = nullptr);

  // The next step. Empty when no request can run; it may then still name
  // sequences that ended, for an executor that keeps state, but not while
  // plans are not answered. A plan that is_noop() has no answer.
  StepPlan Plan();

  // The answer to the oldest plan that has none. An error ends the requests of
  // that plan, and no others; so does a result that lacks answers, or has them
  // in another order. An answer that does not fit its selection
  // (beam/validate_result.h) ends its request alone. Answers of requests that
  // are gone are dropped.
  // REQUIRES: some plan is not answered.
  void Advance(absl::StatusOr<StepResult> result);

  // Answers the request with `why` and gives its pages back; at any moment,
  // also between Plan and Advance: executors run plans in order, so a page may
  // be given out while an earlier plan uses it. Does nothing if the request
  // does not wait or run. Costs the same however many wait.
  void Cancel(RequestId id, const absl::Status& why);
  void CancelAll(const absl::Status& why);

  // Ends the requests whose deadline (GenerationParams::deadline_ms from
  // PreparedRequest::submitted) has passed, at any moment, as Cancel: with the
  // best result so far, or, before the first token, with kDeadlineExceeded,
  // saying what they waited for. O(log n) each, however many there are.
  void ExpireDeadlines(Deadlines::Time now);
  // The earliest.
  std::optional<Deadlines::Time> first_deadline() const {
    return deadlines_.first();
  }

  // Releases the pages that no request holds, and announces none of the others.
  // Returns how many there were.
  int ResetPrefixCache() {
    const int num_pages = tree_.num_pages();
    tree_.Clear();
    return num_pages;
  }

  int num_waiting() const { return waiting_.size(); }
  int num_running() const { return groups_.num_running(); }
  // Admitted, and preempted to make room.
  int num_preempted() const {
    return static_cast<int>(groups_.size()) - groups_.num_running();
  }
  bool holds_requests() const { return !waiting_.empty() || !groups_.empty(); }
  const PagePool& pool() const { return pool_; }
  const HostPool& host_pool() const { return host_pool_; }
  const PrefixTree& tree() const { return tree_; }
  const SchedulerStats& stats() const { return stats_; }
  // Adds what there is now: requests, rows and pages. Walks all that runs, so
  // it is for whoever asks, not for every step.
  void CountNow(SchedulerGauges* now) const;

  // What time it is from now on, in nanoseconds since any moment, for the times
  // in stats() alone; 0 until it is called.
  void SetTime(int64_t now) { now_ = now; }

 private:
  // What a plan feeds.
  struct PlanCounts {
    int64_t num_prompt_tokens = 0;
    // Among them: padding, and what decoders begin with.
    int64_t num_after_sources = 0;
    int64_t num_fed_again = 0;
    int64_t num_decode_sequences = 0;
    int64_t num_sequences_ahead = 0;  // of continuations with drafts, at most
    int num_decode_groups = 0;        // without drafts
    int64_t num_draft_tokens_fed = 0;
    int64_t num_draft_pages = 0;
  };

  // What a step may still take.
  struct Budget {
    int num_tokens = 0;
    int num_logits = 0;  // rows of them
    int num_prefill_rows = 0;
    DraftRoom drafts = {};
    bool is_used_up() const { return num_tokens < 1 || num_logits < 1; }
  };

  // What the groups that run demand of the next step.
  struct Demand {
    // Whether a group goes ahead of its answer or feeds its prompt; and whether
    // one goes ahead if its drafts have room. Where none does, those whose
    // answer is there wait for the others: a step together is cheaper than two.
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
    // Pages that go beyond one for each of these, at most: of groups that run
    // ahead.
    int64_t num_pages_ahead = 0;

    // Pages that those which decode take, at most.
    int64_t max_decode_pages() const {
      return num_decode_rows + num_pages_ahead;
    }
    void Add(const BeamGroup& group, bool drafts_ahead);
    friend bool operator==(const Demand&, const Demand&) = default;

   private:
    void AddAny(const BeamGroup& group, bool drafts_ahead);
  };
  // It is put together as answers are applied, where they are those of all that
  // run: groups are at hand then. Otherwise all are looked at again.
  Demand TakeDemand();
  Demand FindDemand() const;
  // Of Plan: throws std::bad_alloc, or an error of the plan, and then
  // AbandonPlan is called.
  void WritePlan(StepPlan* plan);
  void FillPlan(bool decodes, const Demand& demand, StepPlan* plan);
  // `plan` will not run: all groups that run end with `why`. What ended before
  // is said next.
  void AbandonPlan(StepPlan plan, const absl::Status& why);
  // Whether it is the prompts' turn to have a step alone.
  bool IsForPrefillAlone(const Demand& demand);
  // Rows of logits that must be left for the next `num_tokens` of a group that
  // feeds its prompt; and whether a step in which `num_decode_rows` beams
  // decode leaves some group too few.
  int NumAskedIn(const BeamGroup& group, int num_tokens) const;
  bool NeedsRowsOf(int num_decode_rows) const;
  // Preempts groups until all that PlanGroup takes is available; and shares
  // prefixes.
  struct Room {
    int64_t num_pages = 0;          // that PlanGroup takes
    int64_t num_prefill_pages = 0;  // of these, groups that prefill
    bool was_made = false;          // some group was preempted
  };
  Room MakeRoom(bool decodes, StepPlan* plan);
  // What is left for drafts of a step in which so many pages are taken. Where
  // prompts wait to be fed they have their share of the tokens, at least one.
  // Whoever would come in without drafts comes in: they leave its pages.
  DraftRoom RoomForDrafts(const Room& taken);
  // Shares what the prefix tree has of what the group feeds next, and loads
  // what host memory has. `num_promised` pages are for groups before it.
  void MatchPrefix(RunningGroup& running, int64_t num_promised, StepPlan* plan);
  // Pages that the group takes of this plan.
  int64_t NumPagesNow(const RunningGroup& running, bool decodes) const;
  // Whether the budget has room for the group's next rows.
  bool HasRoomFor(const BeamGroup& group, const Budget& budget) const;
  // Of FillPlan: groups that can decode, some of which may have drafts; and
  // those that feed their prompts.
  void PlanDecodes(StepPlan* plan, Budget* budget);
  void PlanPrefills(StepPlan* plan, Budget* budget);
  // Whether a group that has to draft ahead of its answer has room for that; of
  // any that could plan.
  bool CanDraftAhead(const BeamGroup& group, const DraftRoom& room) const;
  bool CanAnyDraftAhead();
  // Adds what one group runs next: a chunk of its prompt; tokens that may have
  // drafts; or, of several groups, tokens alone.
  void PlanGroup(RunningGroup& running, StepPlan* plan, Budget* budget);
  void PlanPrefill(RunningGroup& running, StepPlan* plan, Budget* budget);
  void PlanDrafting(RunningGroup& running, StepPlan* plan, Budget* budget);
  void PlanDecode(std::span<RunningGroup> groups, StepPlan* plan,
                  Budget* budget);
  // BeamGroup::PlanStep, and what its rows take of the budget.
  void PlanRows(RunningGroup& running, StepPlan* plan, Budget* budget);
  // What the drafts of one group take that are verified in the step; and those
  // that it asks a draft model for, to be verified later.
  void CountDrafts(int num_drafted, int num_logits, int64_t num_pages,
                   Budget* budget);
  void CountAsked(const BeamGroup& group, std::span<const DraftSequence> asked,
                  Budget* budget);
  // Groups that resume and requests that start, by turn.
  void Admit(StepPlan* plan, Budget* budget);
  bool AdmitNext(StepPlan* plan, Budget* budget);
  // Null if it ended for want of memory.
  RunningGroup* Start(WaitingRequest next);
  // The group that resumes before any request starts; null if there is none.
  RunningGroup* NextToResume();
  // Pages that have to be available so that it, or else the request whose turn
  // comes first, may run now: what it takes until it decodes, beside what those
  // that run take soon. Unset: there are more than `num_available`, or it may
  // not run now for another reason, or there is none.
  std::optional<int64_t> NumPagesForNext(int64_t num_available);
  bool NextFits() { return NumPagesForNext(pool_.num_available()).has_value(); }
  // Of a request that takes `num_pages` until it decodes, less those of its
  // prompt that it can share.
  std::optional<int64_t> NumPagesFor(const RequestNeeds& needs,
                                     int64_t num_pages, const Request& request,
                                     int64_t num_available);
  void Remember(const StepPlan& plan);
  // Those of whom the plan being written has copies or loads and nothing else,
  // because its tokens were used up, are planned as well: they end if it fails.
  void AddMovers();
  // The plan being written saves nothing: what it was to save is fed again.
  void DropSaves(StepPlan* plan);
  // The plan has saved the pages of these, or has not.
  void AnswerSaves(const PlanInFlight& plan, bool are_saved);
  void RecordCosts(const PlanInFlight& plan, const StepResult& result);
  void TakeScoring(const PromptLogprobsResult& result, size_t num_tokens);
  // Ends those of the plan's requests that only score and have all of it.
  void FinishScored(const PlanInFlight& plan);
  void TakeDrafts(const PlanInFlight& plan, std::span<DraftedTokens> drafts);
  // `answers_plan`: they are all that the groups have in the plan.
  void AdvanceGroups(std::span<const SelectionResult> results,
                     bool answers_plan);
  void Advance(RunningGroup& running, const SelectionResult& result);
  // BeamGroup::ApplyResult of one that may have drafts.
  absl::Status AdvanceDrafting(RunningGroup& running,
                               const SelectionResult& result);
  void Finish(RunningGroup& running, absl::StatusOr<Result> result);
  void EraseDone();
  void CountEnd(const absl::StatusOr<Result>& result);
  void FinishAtDeadline(RunningGroup& running);
  // Counts the step that runs now, when all answers before it are there.
  void CountStep();
  void Validate(const StepPlan& plan) const;

  // Constant after construction.
  const SchedulerOptions options_;
  const bool async_scheduling_;
  const int vocab_size_;
  const int max_logits_;              // of a step
  const int max_prefill_rows_;        // of a step
  const absl::Status out_of_memory_;  // made while there is some

  PagePool pool_;    // before the tree, and all three before the groups: they
  PrefixTree tree_;  // outlive them
  HostPool host_pool_;
  const bool has_shareable_pages_;
  const bool verifies_beam_drafts_;
  const int max_draft_context_;
  const bool drafts_before_steps_;
  const bool drafts_ahead_;
  const Admission admission_;
  SequenceIdSource sequence_ids_;
  Deadlines deadlines_;  // before the requests, which have entries
  WaitingRequests waiting_;
  RunningGroups groups_;
  int64_t prefill_debt_ = 0;  // tokens that prompts did not get
  bool was_for_prefill_alone_ = false;
  int64_t num_plans_ = 0;           // that were not empty
  bool may_admit_ = true;           // in the plan that is written
  StepPlan next_plan_;              // forks and ended sequences so far
  PlanSizes last_sizes_;            // of the last plan that was not empty
  std::vector<RequestId> planned_;  // requests of the plan being written
  std::vector<RequestId> saved_;    // whose pages it saves
  PlanCounts planned_counts_;       // of it; plain continuations are not in
  // Whether some group changes when the plan is out: it is named for the first
  // time, or may have pages to copy or to load.
  bool changes_groups_ = false;
  bool has_done_groups_ = false;
  // Of those that an answer was applied to since the last plan and the last end
  // of a group: all, if they are as many as there are.
  Demand demand_;
  PlansInFlight in_flight_;
  StepCosts costs_;
  int num_decode_sequences_ = 1;  // of the last step that had any
  SavingPolicy saving_policy_;
  SchedulerStats stats_;
  int64_t now_ = 0;
};

inline void Scheduler::Demand::Add(const BeamGroup& group, bool drafts_ahead) {
  ++num_groups;
  // Mostly it decodes, and all its answers are there.
  if (group.prefilling() || group.outstanding() || group.speculates() ||
      group.only_scores() || group.is_preempted()) {
    return AddAny(group, drafts_ahead);
  }
  num_decode_rows += group.num_live_beams();
}

}  // namespace espalier
