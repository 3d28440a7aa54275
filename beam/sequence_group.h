// SequenceGroup: the sequences of one request, from its prompt to its
// hypotheses. It says what a step does for the request and in which order its
// parts change; each part owns its data:
//
//   GroupSearch       what the sequences are: tree, strategy, stopping
//   GroupPages        where they live: slots, page tables, forks
//   GroupPrefill      the tokens to feed before they decode
//   GroupPlanWriter   what plans say about them: rows and selections
//   GroupSpeculation  their drafts
//   GroupScoring      log-probabilities of given tokens
//
// A surviving beam keeps its slot, and its other children fork into slots of
// pruned beams (beam/pages/group_pages.h).
//
//   one sequence, slot 0: the prompt, in chunks        (prefill)
//   its last token's candidates fork it into the slots (first decode step)
//   one row a live beam, each step                     (decode)
//
// If the executor runs ahead, a group may also plan the step after one whose
// result it has not read (docs/step.md, "Running ahead"). Such a plan gives
// each slot a tail page to write into, whichever beam will live there.
//
// If a request speculates, its sequences feed drafts after their last tokens
// (beam/drafts/group_drafts.h, beam/drafts/draft_choice.h), and the result
// verifies them. Accepted tokens are fed already, and rejected ones are
// truncated. Samples with a draft model: the plan that requests drafts also
// verifies them, and may run ahead of the result before it. Beams with a draft
// model: an earlier plan requests drafts, and feeds nothing of the group. Beams
// feed paths, each in a row of its own, and one result may decide several steps
// (beam/drafts/draft_replay.h).
//
// A request that only scores has no selections. After the prompt its one
// sequence walks the trie of the continuations (beam/continuation_walk.h) as
// part of its prefill, beside rows that are forks of it for one step. It ends
// when all results have arrived.
//
// Legal tokens of a constraint may take long to list. Then the group plans
// nothing until another thread has made its lists (ListWork).
//
// A group can be preempted, to make room for others, and resumed. It keeps its
// tokens and its strategy, and loads the contents of its pages from host memory
// or recomputes them (beam/pages/group_prefill.h). The result is the same.
//
// A group belongs to its pool's strand. Results come in the order of plans. A
// plan that selects for this group is followed by its result before the next
// plan is written, or before the second next if that one runs ahead.
//
//   SequenceGroup group(id, PreparedRequest(request), &pool, &sequence_ids);
//   StepPlan plan;
//   while (!group.done()) {
//     RETURN_IF_ERROR(group.PlanStep(max_tokens, &plan));
//     group.OnPlanOut();
//     StepResult result = ...;  // an executor's result for the plan
//     plan = StepPlan();
//     group.OnAnswer();
//     for (const SelectionResult& selection : result.selections) {
//       RETURN_IF_ERROR(group.ApplyResult(selection, vocab_size, &plan));
//     }
//   }
//   Result result = group.TakeResult();
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "beam/drafts/group_drafts.h"
#include "beam/group_plan_writer.h"
#include "beam/group_scoring.h"
#include "beam/group_search.h"
#include "beam/group_speculation.h"
#include "beam/group_tracer.h"
#include "beam/pages/group_pages.h"
#include "beam/pages/group_prefill.h"
#include "beam/pages/sequence.h"
#include "beam/prepared_request.h"
#include "beam/strategy/decode_strategy.h"
#include "beam/strategy/search_watcher.h"
#include "constrain/constraint.h"
#include "exec_request/step_plan.h"
#include "pages/page_pool.h"
#include "pages/prefix_tree.h"
#include "request/request.h"
#include "trace/trace.h"

namespace espalier {

// Lists of a constraint that a group waits for: LegalTokens of each place, on
// any thread but the strand.
struct ListWork {
  RequestId request;
  std::shared_ptr<const Constraint> constraint;
  std::vector<ConstraintPlace> places;
  std::weak_ptr<const void> is_awaited;  // expired: it waits no more
};

// Aligned to minimize the cache lines that a step reads.
class alignas(64) SequenceGroup {
 public:
  // The pool, ids, `tree` and `trace` outlive the group; the last two may be
  // null.
  SequenceGroup(RequestId id, PreparedRequest prepared, PagePool* pool,
                SequenceIdSource* ids, PrefixTree* tree = nullptr,
                TraceSink* trace = nullptr);

  RequestId id() const { return writer_.id(); }
  const Request& request() const { return request_; }
  // Prompt tokens as given: with an encoder, those of the source.
  int64_t num_prompt_tokens() const { return num_prompt_tokens_; }

  // Returns the number of tokens that it would feed in the next step: the rest
  // of the prefill, or one for each live beam. 0 when done or preempted.
  int64_t num_pending_tokens() const;
  // Beams that feed in the running step, which are the rows of its result. 1 in
  // the prompt, 0 when done.
  int num_live_beams() const { return pages_.num_sequences(); }
  // Largest number of sequences that the next step feeds. A step that runs
  // ahead reserves rows for all beams that may live then.
  int max_decode_rows() const {
    return outstanding() ? pages_.num_slots() : num_live_beams();
  }
  // True if tokens of the prompt, tokens to recompute, or tokens to score are
  // in no plan yet.
  bool prefilling() const {
    return !done_ && !is_preempted() &&
           (!prefill_.done() || (only_scores_ && !scoring_.all_planned()));
  }
  // only_scores(): the request generates nothing. has_scored_all(): all of its
  // results are there, so the group must be dropped and its result taken.
  bool only_scores() const { return only_scores_; }
  bool has_scored_all() const {
    return only_scores() && !done_ && scoring_.all_planned() &&
           !prefill_.has_plan_in_flight();
  }
  // Largest number of tokens that one of its rows of logits scores.
  int max_asked_at_once() const {
    return only_scores() ? scoring_.max_asked_at_once() : 0;
  }
  // As above, within its next `max_tokens` tokens.
  int NumAskedAtOnceIn(int max_tokens) const;
  // Before a prefill step: shares pages of the prefix tree and loads saved
  // pages, with copies and loads into `*plan`. Afterwards it may have nothing
  // to prefill, or wait for pages that another group is filling. `num_promised`
  // pages are reserved for groups before it in the plan. Throws std::bad_alloc,
  // as PlanStep does.
  void MatchPrefix(int64_t num_promised, StepPlan* plan);
  bool is_waiting_for_prefix() const { return prefill_.is_waiting(); }
  // Live beams; while prefilling, the beams that will live when all tokens are
  // recomputed.
  int num_beams() const {
    return prefilling() ? prefill_.num_branches() : num_live_beams();
  }
  bool uses_prefix_tree() const { return keeps_pages_; }
  // As GroupPrefill::LeaveTree.
  void LeavePrefixTree() {
    keeps_pages_ = false;
    prefill_.LeaveTree();
  }
  const PrefillCounts& prefill_counts() const { return prefill_.counts(); }
  const PrefixRoots& prefix_roots() const { return prefill_.roots(); }

  // Returns the pages that PlanStep takes from the pool to feed `max_tokens`.
  int64_t NumPagesForStep(int max_tokens) const;
  // Returns the most pages that it takes until every sequence has begun a page.
  int64_t NumPagesSoon() const;

  // True if a step can be planned now. If a result is outstanding, the step
  // runs ahead of it. This requires that no other result is outstanding, that
  // the step is within max_new_tokens, that the strategy supports it, and that
  // either neither step has drafts or a draft model drafts for both
  // (ContinuedDrafts).
  bool can_plan() const {
    if (done_ || is_preempted()) return false;
    if (only_scores_) return prefilling();
    if (outstanding()) return CanPlanAhead();
    return !speculation_.drafts().is_waiting() &&
           (!awaits_lists() || prefilling());
  }
  // True between a call of AwaitLists that returned work and OnListed.
  bool awaits_lists() const { return awaited_lists_ != nullptr; }
  // After Advance: returns the lists of legal tokens that take long and that
  // the next step needs, and waits for them. Without any, waits for nothing.
  // Throws std::bad_alloc. REQUIRES: !done().
  std::optional<ListWork> AwaitLists();
  void OnListed() { awaited_lists_ = nullptr; }
  bool is_constrained() const { return search_.is_constrained(); }
  // has_to_draft(): the group can only plan a step with drafts, ahead of the
  // result of a step that verifies drafts. Whether it fits depends on the room
  // for drafts, see can_draft_in().
  bool has_to_draft() const {
    return writer_.num_outstanding() == 1 && speculation_.CanDraftAhead();
  }
  bool can_draft_in(const DraftRoom& room) const {
    return speculation_.NumAhead(room) > 0;
  }
  // True if the last result lacked beams (BeamSelection::may_lack), so that the
  // next plan has its step again.
  bool repeats_step() const { return repeats_step_; }
  // True if the next result is of a step that ran ahead of that one.
  bool ignores_result() const { return num_ignored_ > 0; }
  // True if a plan selected for it and the result is outstanding.
  bool outstanding() const { return writer_.num_outstanding() > 0; }
  // True if a plan in flight has work for it, which may be a chunk of its
  // prompt or saves of its pages.
  bool has_plan_in_flight() const {
    return is_saving_ || prefill_.has_plan_in_flight();
  }

  // Adds its rows to `*plan`, with the page copies that they need. While
  // prefilling it feeds at most `max_tokens` tokens of the prompt; otherwise
  // one token of every live beam, and drafts that fit `draft_room`. If a result
  // is outstanding, it adds a continuation. A plan selects for the group unless
  // its chunk leaves a part of the prompt. If log-probabilities of the prompt
  // are reported, at most `max_logits` of the fed tokens have a row of logits.
  // Scored continuations use DraftRoom::num_pages for rows beside the first.
  // Errors: kResourceExhausted, leaving `*plan` unchanged, if the pool has
  // fewer than NumPagesForStep; then the group must be preempted or dropped.
  // REQUIRES: can_plan(), max_tokens >= 1, max_logits >= 1;
  // can_draft_in(draft_room) if has_to_draft().
  absl::Status PlanStep(int max_tokens, StepPlan* plan,
                        int max_logits = std::numeric_limits<int>::max(),
                        int max_prefill_rows = std::numeric_limits<int>::max(),
                        const DraftRoom& draft_room = {});
  // Fast path of PlanStep for a group that decodes without drafts. REQUIRES:
  // can_plan(), !prefilling(), !may_draft().
  absl::Status PlanDecode(StepPlan* plan) {
    if (outstanding() || !decodes_plainly_) return PlanDecodeSlowPath(plan);
    prefill_.OnPlan();
    return PlanTokens(plan);  // the common case
  }
  // True if PlanStep, with these arguments, ends the prompt: its rows belong to
  // a selection.
  bool EndsPrompt(int max_tokens, int max_logits) const;

  // Validates `result` as the oldest outstanding one (validate_result.h).
  // Errors: kInternal, saying what is wrong with it; then the group must be
  // dropped.
  // REQUIRES: !done().
  absl::Status ValidateResult(const SelectionResult& result, int vocab_size);

  // Takes the log-probabilities of the `num_tokens` tokens that a plan scored,
  // in or after the prompt. Called in the order of plans, before the selection
  // result of the plan is applied. Errors: kInternal if they are for other
  // tokens; then the group must be dropped.
  absl::Status TakeScoring(PromptLogprobsResult&& result, size_t num_tokens,
                           int vocab_size) {
    return scoring_.Take(std::move(result), num_tokens, vocab_size);
  }

  // Takes the draft model's drafts for its sequences, before Advance. Errors:
  // kInternal if they do not match the request (GroupDrafts::Validate); then
  // the group must be dropped.
  absl::Status TakeDrafts(std::span<DraftedTokens> drafts, int vocab_size) {
    return speculation_.TakeDrafts(drafts, vocab_size);
  }

  // Least number of pages that the next step needs to verify the requested
  // drafts, beside those for one token of each sequence.
  int64_t num_asked_pages() const { return speculation_.num_asked_pages(); }

  // True if its steps may have drafts at present.
  bool may_draft() const { return speculation_.is_on(); }
  // True if its next step verifies drafts of the draft model.
  bool has_drafts() const {
    return !done_ && !is_preempted() && !prefilling() &&
           speculation_.drafts().has_answer();
  }

  // Applies the oldest outstanding result. Forks of sequences, and sequences
  // that ended, go into `*next_plan`; no forks if the next step is planned
  // already. `watcher`, unless null, is called after each step that the result
  // decides, except one that failed. Throws std::bad_alloc; then the group must
  // be dropped, as after PlanStep.
  // Errors: as DecodeStrategy::Advance; then the group is done.
  // REQUIRES: !done(), a selection result is outstanding, and ValidateResult
  // was OK.
  absl::Status Advance(const SelectionResult& result, StepPlan* next_plan,
                       SearchWatcher* watcher = nullptr);

  // Calls ValidateResult, and Advance if that was OK. REQUIRES: as both.
  absl::Status ApplyResult(const SelectionResult& result, int vocab_size,
                           StepPlan* next_plan,
                           SearchWatcher* watcher = nullptr) {
    if (watcher != nullptr || !ContinueAll(result, vocab_size)) {
      return ApplyAnyResult(result, vocab_size, next_plan, watcher);
    }
    if (!pages_.KeepOrder()) {
      ApplyContinuations(result, /*is_last=*/true, next_plan);
    }
    return absl::OkStatus();
  }

  // Called once for the result of every plan with work for it, before Advance.
  void OnAnswer() { prefill_.OnAnswer(); }

  // Releases all pages. The prefix tree keeps those worth caching, and host
  // memory those that would be lost otherwise. Outstanding results are applied
  // as usual. As in Drop, the ended group and its sequences go into `*plan` if
  // `names_end`, and its copies and loads are removed from the plan. Throws
  // std::bad_alloc; then the group must be dropped. REQUIRES: `*plan` has no
  // rows of this group.
  void Preempt(const PageSaving& saving, bool names_end, StepPlan* plan);
  // True while a plan that saves its pages is in flight. OnSaved completes it;
  // DropSaved does if the plan failed, and all tokens are recomputed.
  bool is_saving() const { return is_saving_; }
  void OnSaved() { is_saving_ = false; }
  void DropSaved();
  bool is_preempted() const { return pages_.is_preempted(); }
  // Resumes by feeding all tokens again that it had fed. If it throws
  // std::bad_alloc, nothing has changed. REQUIRES: is_preempted(),
  // !has_plan_in_flight().
  void Resume();
  // Returns the most pages that it takes to resume.
  int64_t NumPagesToResume() const;

  // Called if the plan has only MatchPrefix's copies and loads for the group.
  void OnMovesAlone() { prefill_.OnPlan(); }
  // Called when the plan written by MatchPrefix and PlanStep is sent.
  void OnPlanOut() { pages_.OnPlanOut(prefill_.done()); }
  // Removes MatchPrefix's changes from the next plan, before Drop.
  void WithdrawMoves(StepPlan* plan) { pages_.WithdrawMoves(plan); }

  // True if it has generated a token, so that there is a best result so far.
  bool has_output() const { return num_steps_ > 0; }
  // Ends the group with its best result so far, at any moment
  // (DecodeStrategy::FinishLive), and drops it. Outstanding results do not
  // contribute. Throws std::bad_alloc; then the group must be dropped.
  // REQUIRES: !done(), has_output().
  void FinishEarly(FinishReason reason, StepPlan* next_plan);

  // Prefetches for a loop over many groups: Prefetch() the members that a step
  // of one sequence reads, PrefetchParts() the memory that these point to.
  // Always inlined: gcc drops calls of functions that only prefetch.
  [[gnu::always_inline]] void Prefetch() const {
    __builtin_prefetch(&done_);
    __builtin_prefetch(&pages_);
    prefill_.Prefetch();
  }
  [[gnu::always_inline]] void PrefetchParts() const {
    search_.PrefetchStrategy();
    writer_.PrefetchSelection();
    pages_.PrefetchSlots();
  }

  // True if a plan named it since it began or resumed.
  bool was_planned() const { return writer_.was_planned(); }

  // Releases all pages. If a plan ever named the group, it and its sequences go
  // into next_plan->ended and finished. `next_plan` is null if no executor
  // received such a plan. Then the group is done. If it throws std::bad_alloc,
  // nothing has changed. REQUIRES: `*next_plan` has no rows of this group.
  void Drop(StepPlan* next_plan);

  bool done() const { return done_; }
  // For a SearchWatcher.
  const DecodeStrategy& strategy() const { return search_.strategy(); }
  // For validation and statistics.
  const GroupPages& pages() const { return pages_; }
  // Moves the result out, once. REQUIRES: done(). If it only scores,
  // has_scored_all() before the drop.
  Result TakeResult();
  // speculates(): steps may have drafts, or could at first. SetDraftCost sets
  // the current cost of drafts for the next steps.
  bool speculates() const { return speculation_.enabled(); }
  bool drafts_by_model() const { return speculation_.drafts().is_by_model(); }
  int num_logits_per_draft_token() const {
    return speculation_.drafts().num_logits_per_token();
  }
  void SetDraftCost(const DraftCost& cost) { speculation_.SetCost(cost); }
  // Returns the number of results that a step with drafts waits for beyond a
  // step without, if plans run ahead: one for the step before, unless a draft
  // model drafts ahead, and one for a plan that requests drafts first.
  int NumWaitsToDraft() const { return speculation_.NumWaitsToDraft(); }
  // Counts since the start; TakeSpeculation returns those since its last call.
  int64_t num_drafted_tokens() const {
    return speculation_.drafts().num_drafted();
  }
  int64_t num_accepted_tokens() const {
    return speculation_.drafts().num_accepted();
  }
  SpeculationFigures TakeSpeculation() { return speculation_.TakeFigures(); }

  // Records the request's result in the trace, if there is one. REQUIRES:
  // done().
  void RecordEnd(const absl::StatusOr<Result>& result);

 private:
  // As can_plan(), while a result is outstanding.
  bool CanPlanAhead() const;
  absl::Status PlanRows(int max_tokens, StepPlan* plan, int max_logits,
                        int max_prefill_rows, const DraftRoom& draft_room);
  absl::Status PlanPrefill(int max_tokens, int max_logits, int max_rows,
                           StepPlan* plan);
  // PlanDecode with a source, ahead of a result, or with a trace.
  absl::Status PlanDecodeSlowPath(StepPlan* plan);
  // Plan one token of each sequence: now, and ahead of an outstanding result.
  absl::Status PlanTokens(StepPlan* plan);
  absl::Status PlanNextAsync(StepPlan* plan);
  void AddTokenRows(std::span<const Continuation> live, StepPlan* plan) const;
  // Adds the source of the plan's rows from `first_row` on.
  void AddSource(int first_row, StepPlan* plan);
  // Position of every beam's next token in a step that runs ahead. A
  // continuation names one position, so its beams have one length.
  int PositionAhead() const;
  // True if the continuations of a request that only scores are next.
  bool is_walking() const {
    return only_scores_ && scoring_.has_begun() && prefill_.done();
  }

  // Fast path for a result in which each sample has one token and continues.
  // Advances the strategy and returns true; otherwise changes nothing.
  bool ContinueAll(const SelectionResult& result, int vocab_size) {
    if (done_ || !outstanding() || !search_.ContinueAll(result, vocab_size)) {
      return false;
    }
    CountResult();
    return true;
  }
  absl::Status ApplyAnyResult(const SelectionResult& result, int vocab_size,
                              StepPlan* next_plan, SearchWatcher* watcher);
  // AdvanceSteps applies all steps of a result, AdvanceStep one of them.
  absl::Status AdvanceSteps(const SelectionResult& result, StepPlan* next_plan,
                            SearchWatcher* watcher);
  absl::Status AdvanceStep(const SelectionResult& result, bool is_last,
                           StepPlan* next_plan);
  // Advances the strategy, and drops the group or applies its continuations.
  // `decisions` may be null unless log-probabilities are reported.
  absl::Status Decide(const SelectionResult& result, bool is_last,
                      std::vector<Decision>* decisions, StepPlan* next_plan);
  absl::Status DecideAndTrace(const SelectionResult& result, bool is_last,
                              StepPlan* next_plan);
  // Counts the arrival of the oldest outstanding result.
  void CountResult() {
    writer_.OnResult();
    ++num_steps_;
  }
  // Called instead of CountResult if the result lacks beams
  // (BeamSelection::may_lack): the step is planned again.
  void RepeatStep();
  // Updates the sequences and their pages by the strategy's decisions.
  void ApplyContinuations(const SelectionResult& result, bool is_last,
                          StepPlan* next_plan);
  void ApplyToPages(std::span<const Continuation> beams, bool is_last,
                    StepPlan* next_plan);
  // Fast path: updates the sequences if each has one child, of its own rank,
  // and no page moves. Returns false otherwise, having changed nothing.
  bool KeepOrder(std::span<const Continuation> beams);
  // Returns a 1 for each slot; valid until the next call.
  std::span<const int> OneEach() const {
    const size_t count = pages_.slots().size();
    if (one_each_.size() < count) one_each_.resize(count, 1);
    return std::span(one_each_).first(count);
  }
  // Keeps the pages of sequences that ended with this step.
  void KeepEnded();
  void Keep(int rank, TokenTree::Node node, int num_generated);
  // Keeps the pages of all fed tokens of live sequences.
  void KeepLive();

  // Constant after construction.
  const int64_t num_prompt_tokens_;  // as given
  const Request request_;
  bool keeps_pages_;
  const bool only_scores_;

  // Members that each step reads are adjacent: those of search_, which come
  // first there, up to those of pages_.
  bool is_saving_ = false;
  bool done_ = false;
  bool decodes_plainly_ = false;  // without a trace or a source
  bool repeats_step_ = false;     // next, with the tokens of the last step
  int8_t num_ignored_ = 0;        // outstanding results
  std::shared_ptr<const void> awaited_lists_;  // null: it awaits none
  int64_t num_steps_ = 0;                      // steps with a result
  std::unique_ptr<GroupTracer> tracer_;        // null without a trace
  GroupPlanWriter writer_;
  GroupSearch search_;
  GroupPages pages_;
  GroupPrefill prefill_;  // after pages_, because its pages are released first
  GroupSpeculation speculation_;
  GroupScoring scoring_;
  mutable std::vector<int> one_each_;  // buffer of OneEach()
};

}  // namespace espalier
