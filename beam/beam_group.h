// BeamGroup: the sequences of one request, from its prompt to its hypotheses.
// It writes its rows into step plans, and lets its pages follow its strategy's
// decisions (beam/pages/group_pages.h): a surviving beam keeps its slot, its
// other children fork into the slot of a beam that was pruned.
//
//   one sequence, slot 0: the prompt, in chunks        (prefill)
//   its last token's candidates fork it into the slots (first decode step)
//   one row a live beam, each step                     (decode)
//
// For an executor that runs ahead a group may also plan one step ahead:
// the step after one that is not answered yet (docs/step.md, "Running ahead").
// Such a step is planned with a page for every slot to write into, its tail,
// whichever beam will live there.
//
// A request that speculates has its sequences feed drafts after their last
// tokens (beam/drafts/group_drafts.h, beam/drafts/draft_choice.h). The answer
// verifies them: what it accepts was fed already, and what it rejects is
// truncated. Where a draft model drafts for samples, the plan that asks for
// drafts verifies them, and may go ahead of the answer before it; for beams a
// plan before asks, and feeds nothing of the group. Beams feed paths, in as
// many rows as these take, and one answer may decide several steps
// (beam/drafts/draft_replay.h).
//
// A request that only scores has no selections: after its prompt its one
// sequence walks the trie of the continuations (beam/continuation_walk.h), as
// part of its prefill, and beside it rows that are forks of it for a step. It
// has ended when all of that is answered.
//
// A group can be preempted, to make room for others, and resumed: it keeps its
// tokens and its strategy, and loads from host memory or feeds again what its
// pages held (beam/pages/group_prefill.h). That changes nothing about its
// result.
//
// A group belongs to its pool's strand. Answers come in the order of plans; a
// plan that selects for this group is answered before the next is written, or
// before the one after that if it goes ahead.
//
//   BeamGroup group(id, PreparedRequest(request), &pool, &sequence_ids);
//   StepPlan plan;
//   while (!group.done()) {
//     RETURN_IF_ERROR(group.PlanStep(max_tokens, &plan));
//     group.OnPlanOut();
//     StepResult result = ...;  // an executor's answer to the plan
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
#include <span>
#include <utility>
#include <vector>

#include "beam/continuation_walk.h"
#include "beam/drafts/draft_choice.h"
#include "beam/drafts/draft_replay.h"
#include "beam/drafts/drafts_in_flight.h"
#include "beam/drafts/group_drafts.h"
#include "beam/drafts/path_rows.h"
#include "beam/group_tracer.h"
#include "beam/pages/group_pages.h"
#include "beam/pages/group_prefill.h"
#include "beam/pages/sequence.h"
#include "beam/prepared_request.h"
#include "beam/strategy/decode_strategy.h"
#include "beam/strategy/sample_strategy.h"
#include "beam/strategy/search_watcher.h"
#include "beam/strategy/selection_options.h"
#include "beam/strategy/token_logprobs.h"
#include "exec_request/step_plan.h"
#include "pages/page_pool.h"
#include "pages/prefix_tree.h"
#include "request/request.h"
#include "trace/trace.h"

namespace espalier {

// Aligned, so that what a step reads of it lies in few lines of cache.
class alignas(64) BeamGroup {
 public:
  // Pool and ids outlive the group; so do `tree` and `trace`, which may be
  // null.
  BeamGroup(RequestId id, PreparedRequest prepared, PagePool* pool,
            SequenceIdSource* ids, PrefixTree* tree = nullptr,
            TraceSink* trace = nullptr);

  RequestId id() const { return id_; }
  const Request& request() const { return request_; }
  // As they were given: those of a source without what lies after it.
  int64_t num_prompt_tokens() const { return num_prompt_tokens_; }

  // How many tokens it would feed in the next step: what is left to prefill, or
  // one for each live beam. 0 when done or preempted.
  int64_t num_pending_tokens() const;
  // Beams that feed in the step that runs: rows of the next answer. 1 in the
  // prompt, 0 when done.
  int num_live_beams() const { return pages_.num_sequences(); }
  // Sequences that the next step feeds a token of, at most: one that goes ahead
  // of an answer has room for all that may live then.
  int max_decode_rows() const {
    return outstanding() ? pages_.num_slots() : num_live_beams();
  }
  // Whether some of the prompt, or of what is fed again, is not planned yet.
  // So is some of what is scored.
  bool prefilling() const {
    return !done_ && !is_preempted() &&
           (!prefill_.done() || (only_scores_ && !walk_->all_planned()));
  }
  // Whether it generates nothing; and whether all that it is asked for is
  // there, so that it is to be dropped and its result taken.
  bool only_scores() const { return only_scores_; }
  bool has_scored_all() const {
    return only_scores() && !done_ && walk_->all_planned() &&
           !prefill_.has_plan_in_flight();
  }
  // Tokens that one row of logits of it scores, at most.
  int max_asked_at_once() const {
    return only_scores() ? walk_->max_asked_at_once() : 0;
  }
  // Tokens that its next `max_tokens` may ask one row of logits about, at most.
  int NumAskedAtOnceIn(int max_tokens) const;
  // Before a step of the prefill: shares what the prefix tree has and loads
  // what was saved, with copies and loads into `*plan`. Afterwards it may have
  // nothing to prefill, or wait for pages that another group is filling.
  // `num_promised` pages are for groups before it in the plan. Throws
  // std::bad_alloc, as PlanStep.
  void MatchPrefix(int64_t num_promised, StepPlan* plan);
  bool is_waiting_for_prefix() const { return prefill_.is_waiting(); }
  // Beams that live, or will when all is fed again that they had.
  int num_beams() const {
    return prefilling() ? prefill_.num_branches() : num_live_beams();
  }
  bool uses_prefix_tree() const { return keeps_pages_; }
  const PrefillCounts& prefill_counts() const { return prefill_.counts(); }

  // Pages that PlanStep takes from the pool if it feeds `max_tokens`.
  int64_t NumPagesForStep(int max_tokens) const;
  // And what it takes at most until every sequence has begun a page.
  int64_t NumPagesSoon() const;

  // Whether a step can be planned now. While an answer is outstanding, that is
  // one ahead of it: if it is the only one, the step is within max_new_tokens,
  // the strategy runs ahead, and neither step may have drafts, or both have a
  // draft model's (ContinuedDrafts).
  bool can_plan() const {
    if (done_ || is_preempted()) return false;
    if (only_scores_) return prefilling();
    return num_unanswered_ == 0 ? !drafts_.is_waiting() : CanPlanAhead();
  }
  // Of a group that can plan: whether drafts decide whether it does, which
  // depends on the room for them. It does so ahead of the answer of a step that
  // verifies drafts.
  bool has_to_draft() const { return outstanding() && CanDraftAhead(); }
  bool can_draft_in(const DraftRoom& room) const {
    return ChoiceIn(room).NumAhead(in_flight_) > 0;
  }
  // Whether a plan selected for it and is not answered.
  bool outstanding() const { return num_unanswered_ > 0; }
  // Whether a plan has a part of it and is not answered, be that a chunk of its
  // prompt or the saving of its pages.
  bool has_plan_in_flight() const {
    return is_saving_ || prefill_.has_plan_in_flight();
  }

  // Adds its rows to `*plan`, feeding at most `max_tokens` tokens of the
  // prompt while prefilling, and otherwise one of every live beam, and drafts
  // that fit `draft_room`; with the page copies these need. Ahead of an answer
  // it adds a continuation. A plan selects for the group unless its chunk
  // leaves some of the prompt. A prompt whose log-probabilities are reported
  // feeds at most `max_logits` tokens that have a row of logits each. What is
  // scored takes DraftRoom::num_pages of `draft_room` for rows beside the
  // first. Errors: kResourceExhausted, leaving `*plan` unchanged, if the pool
  // has fewer than NumPagesForStep; it must be preempted or dropped then.
  // REQUIRES: can_plan(), max_tokens >= 1, max_logits >= 1;
  // can_draft_in(draft_room) if has_to_draft().
  absl::Status PlanStep(int max_tokens, StepPlan* plan,
                        int max_logits = std::numeric_limits<int>::max(),
                        int max_prefill_rows = std::numeric_limits<int>::max(),
                        const DraftRoom& draft_room = {});
  // The same of a group that decodes and has no drafts, which is mostly so.
  // REQUIRES: can_plan(), !prefilling(), !may_draft().
  absl::Status PlanDecode(StepPlan* plan) {
    if (outstanding() || tracer_ != nullptr) return PlanStep(1, plan);
    prefill_.OnPlan();
    return PlanTokens(plan);  // mostly
  }
  // Whether PlanStep, given these, ends the prompt: the rows that it adds are
  // those of a selection.
  bool EndsPrompt(int max_tokens, int max_logits) const;

  // Whether `result` can be the oldest outstanding answer (validate_result.h).
  // Errors: kInternal, saying what is wrong with it; the group must be dropped
  // then.
  // REQUIRES: !done().
  absl::Status ValidateResult(const SelectionResult& result, int vocab_size);

  // Takes the log-probabilities of the `num_tokens` tokens that a plan scored,
  // of the prompt or after it, in the order of plans, before the answer of the
  // plan.
  // Errors: kInternal if it is of other tokens; the group must be dropped then.
  absl::Status TakeScoring(const PromptLogprobsResult& result,
                           size_t num_tokens, int vocab_size);

  // Takes what the draft model drafted for its sequences, before Advance.
  // Errors: kInternal if it is not what was asked for (GroupDrafts::Validate);
  // the group must be dropped then.
  absl::Status TakeDrafts(std::span<DraftedTokens> drafts, int vocab_size);

  // Pages that the next step takes to verify what the last plan asked for, at
  // least, beside those of a token of each sequence.
  int64_t num_asked_pages() const { return num_asked_pages_; }

  // Whether its steps may have drafts at present.
  bool may_draft() const { return drafts_.is_on(); }
  // Whether its next step verifies what the draft model has drafted.
  bool has_drafts() const {
    return !done_ && !is_preempted() && !prefilling() && drafts_.has_answer();
  }

  // Applies the oldest outstanding answer. Throws std::bad_alloc, and the group
  // must be dropped then; so must it if PlanStep does. Forks of sequences, and
  // those that ended, go into `*next_plan`; no forks if the next step is
  // planned already. Errors: as DecodeStrategy::Advance; the group is done
  // then.
  // `watcher`, unless null, is called after each step that the answer decides,
  // but one that failed.
  // REQUIRES: !done(), a selection is not answered yet, and
  // ValidateResult was OK.
  absl::Status Advance(const SelectionResult& result, StepPlan* next_plan,
                       SearchWatcher* watcher = nullptr);

  // ValidateResult, and Advance if that was OK.
  // REQUIRES: as of these.
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

  // Every plan in which it has a part is answered by one call, before Advance.
  void OnAnswer() { prefill_.OnAnswer(); }

  // Gives all pages back, to the prefix tree what is worth keeping, and to host
  // memory what is lost otherwise; answers that are outstanding are taken as
  // ever. As of Drop, the group and its sequences go into `*plan` if
  // `names_end`, and what the plan was to copy or load for it is taken out.
  // Throws std::bad_alloc, and the group must be dropped then.
  // REQUIRES: `*plan` has nothing of this group to run.
  void Preempt(const PageSaving& saving, bool names_end, StepPlan* plan);
  // Whether a plan that saves its pages is not answered. OnSaved answers that;
  // where they were not saved DropSaved does, and all is fed again.
  bool is_saving() const { return is_saving_; }
  void OnSaved() { is_saving_ = false; }
  void DropSaved();
  bool is_preempted() const { return pages_.is_preempted(); }
  // Feeds again what it had fed. Throws std::bad_alloc, and has done nothing
  // then.
  // REQUIRES: is_preempted(), !has_plan_in_flight().
  void Resume();
  // Pages that it takes to resume, at most.
  int64_t NumPagesToResume() const;

  // What MatchPrefix copies and loads is all that the plan has of it.
  void OnMovesAlone() { prefill_.OnPlan(); }
  // The plan that MatchPrefix and PlanStep wrote into is out.
  void OnPlanOut() { pages_.OnPlanOut(prefill_.done()); }
  // Takes out of the next plan what MatchPrefix wrote into it, before Drop.
  void WithdrawMoves(StepPlan* plan) { pages_.WithdrawMoves(plan); }

  // Whether a token was generated: whether there is a best result so far.
  bool has_output() const { return num_steps_ > 0; }
  // Ends it where it stands, at any moment, as DecodeStrategy::FinishLive does;
  // answers that are outstanding have no part in its result. Drops it. Throws
  // std::bad_alloc, and the group must be dropped then.
  // REQUIRES: !done(), has_output().
  void FinishEarly(FinishReason reason, StepPlan* next_plan);

  // For whoever goes through many groups: begins to read what a step of one
  // sequence reads of it; and, once that is there, of what it points to.
  // Always inlined: gcc drops calls of functions that only prefetch.
  [[gnu::always_inline]] void Prefetch() const {
    __builtin_prefetch(&num_unanswered_);
    __builtin_prefetch(&pages_);
    prefill_.Prefetch();
  }
  [[gnu::always_inline]] void PrefetchParts() const {
    const auto* const strategy = reinterpret_cast<const char*>(strategy_.get());
    for (int line = 0; line < 3; ++line) {
      __builtin_prefetch(strategy + 64 * line);
    }
    __builtin_prefetch(asked_.get());
    pages_.PrefetchSlots();
  }

  // Whether a plan named it since it began or resumed.
  bool was_planned() const { return was_planned_; }

  // Releases all pages; if a plan ever named it, the group and its sequences
  // go into next_plan->ended and finished, unless `next_plan` is null: no
  // executor got those plans. The group is done then. Throws std::bad_alloc,
  // and has done nothing then.
  // REQUIRES: `*next_plan` has nothing of this group to run.
  void Drop(StepPlan* next_plan);

  bool done() const { return done_; }
  // For a SearchWatcher.
  const DecodeStrategy& strategy() const { return *strategy_; }
  // For the validator and for figures.
  const GroupPages& pages() const { return pages_; }
  // REQUIRES: done(); of a group that only scores, has_scored_all() before it
  // was dropped.
  Result TakeResult() const;
  // Whether steps may have drafts, or might at first, and a model drafts them;
  // and what these cost now, for the next.
  bool speculates() const { return speculates_; }
  bool drafts_by_model() const { return drafts_.is_by_model(); }
  int num_logits_per_draft_token() const {
    return drafts_.num_logits_per_token();
  }
  void SetDraftCost(const DraftCost& cost) { drafts_.SetCost(cost); }
  // Where plans run ahead of answers: how many answers its steps with drafts
  // wait for that its others do not. That of the step before, unless a draft
  // model drafts ahead; and that of a plan that asks a draft model.
  //   drafts_ahead, drafts_before_steps  as ModelDescription's
  int NumWaitsToDraft(bool drafts_ahead, bool drafts_before_steps) const {
    const bool is_by_model = drafts_.is_by_model();
    if (is_by_model && drafts_ahead && !is_beam_search()) return 0;
    const bool asks_first =
        is_by_model && (is_beam_search() || !drafts_before_steps);
    return (strategy_->supports_async_scheduling() ? 1 : 0) +
           (asks_first ? 1 : 0);
  }
  // So far; and what its drafts came to since the last call.
  int64_t num_drafted_tokens() const { return drafts_.num_drafted(); }
  int64_t num_accepted_tokens() const { return drafts_.num_accepted(); }
  SpeculationFigures TakeSpeculation() { return drafts_.TakeFigures(); }

  // Records in the trace, if there is one, how the request was answered.
  // REQUIRES: done().
  void RecordEnd(const absl::StatusOr<Result>& result);

 private:
  // can_plan() while an answer is outstanding.
  bool CanPlanAhead() const;
  // The same of a step that a draft model drafts for, after one of the kind.
  bool CanDraftAhead() const;
  DraftChoice ChoiceIn(const DraftRoom& room) const {
    return {request_, finishing_token_ids_, *strategy_, pages_, drafts_, room};
  }
  absl::Status PlanDraftsAhead(const DraftRoom& room, StepPlan* plan);
  absl::Status PlanRows(int max_tokens, StepPlan* plan, int max_logits,
                        int max_prefill_rows, const DraftRoom& draft_room);
  absl::Status PlanPrefill(int max_tokens, int max_logits, int max_rows,
                           StepPlan* plan);
  absl::Status PlanBeams(const DraftRoom& draft_room, StepPlan* plan);
  // A token of each sequence; and its draft, by rank.
  absl::Status PlanTokens(StepPlan* plan);
  absl::Status PlanDrafts(std::vector<std::vector<TokenId>> drafts,
                          int max_draft_tokens, StepPlan* plan);
  absl::Status PlanPaths(PathRows drafts, StepPlan* plan);
  // Adds the sequences that the draft model drafts for, of the next step; and
  // of this one, with their rows.
  void AskForDrafts(const DraftChoice& choice, StepPlan* plan);
  absl::Status PlanDrafted(const DraftChoice& choice, StepPlan* plan);
  // What was drafted for the step that runs.
  void TakeDraftsOfStep();
  DraftSequence DraftOf(int rank, int num_tokens,
                        const PlanSelection& selection);
  absl::Status PlanNextAsync(StepPlan* plan);
  // The answer that it asks for next, or that is outstanding.
  const PlanSelection& Asked();
  void UpdateAsked(PlanSelection* asked);
  // The same, from these rows of logits on, of a plan that asks for it.
  const PlanSelection& AskFrom(int first_logits);
  void AddRow(const Sequence& sequence, const TokenPath& tokens, int num_logits,
              StepPlan* plan) const;
  // Of a row after the tokens that the plan has so far.
  void AddRowOf(const Sequence& sequence, int num_tokens, int num_logits,
                StepPlan* plan) const;
  // Of a sequence whose next token this is; and of all.
  void AddTokenRow(int rank, TokenId token, StepPlan* plan) const;
  void AddTokenRows(std::span<const Continuation> live, StepPlan* plan) const;
  void AddHistories(PlanSelection* selection) const;
  void AddSelection(int first_logits, StepPlan* plan);
  // Makes `*selection` that of the paths of `*replay_`.
  void DescribePaths(PlanSelection* selection) const;
  // Of the prompt's `num_tokens` tokens from `first` on, those whose next token
  // has its log-probability.
  int NumScored(int first, int num_tokens) const;
  // Of the prompt tokens after the `num_logits_rows` ones that were fed last.
  void AddScoring(int first_logits, int num_logits_rows, StepPlan* plan) const;
  // Tokens of the prompt that have no row of logits, if it is scored, from the
  // one on that is fed next; and log-probabilities of it that are reported.
  int64_t NumNextWithoutLogits() const;
  int64_t NumPromptLogprobs() const;
  absl::Status TakePromptLogprobs(const PromptLogprobsResult& result,
                                  size_t num_tokens, int vocab_size);
  absl::Status TakeWalked(const PromptLogprobsResult& result, size_t num_tokens,
                          int vocab_size);
  bool is_walking() const {
    return only_scores_ && walk_->has_begun() && prefill_.done();
  }
  absl::Status PlanWalk(int max_tokens, int max_asked, int max_rows,
                        int64_t num_pages, StepPlan* plan);
  // Asks a row of logits about the tokens after a node.
  void AddWalked(ContinuationWalk::Node node, int logits_row,
                 StepPlan* plan) const;
  // The rows of the last step are gone, and the stem is where the next begin.
  void RewindWalk(StepPlan* plan);

  bool is_beam_search() const { return IsBeamSearch(request_.params); }
  // Advances the strategy by an answer with which samples draw a token each and
  // all go on, as most do. False of any other, and nothing is done.
  bool ContinueAll(const SelectionResult& result, int vocab_size) {
    if (draws_only_ == nullptr || done_ || !outstanding() ||
        !result.num_tokens.empty() || !result.further.empty() ||
        !draws_only_->ContinueAll(result.candidates, vocab_size)) {
      return false;
    }
    CountAnswer();
    return true;
  }
  absl::Status ApplyAnyResult(const SelectionResult& result, int vocab_size,
                              StepPlan* next_plan, SearchWatcher* watcher);
  // Takes all steps of an answer; and one, which `is_last` or not.
  absl::Status AdvanceSteps(const SelectionResult& result, StepPlan* next_plan,
                            SearchWatcher* watcher);
  absl::Status AdvanceStep(const SelectionResult& result, bool is_last,
                           StepPlan* next_plan);
  // Advances the strategy, and drops the group or follows it. `decisions`
  // may be null unless log-probabilities are reported.
  absl::Status Decide(const SelectionResult& result, bool is_last,
                      std::vector<Decision>* decisions, StepPlan* next_plan);
  // Applies a step's result to the drafts: what was accepted, how long the next
  // are, and how long sequences are by that.
  void AdvanceDrafts(const SelectionResult& result,
                     std::span<const Continuation> live, bool is_last);
  // Whether the step that was answered last could have drafts: the step of a
  // prompt cannot.
  bool might_draft() const { return num_steps_ > 1; }
  // The oldest outstanding answer is there.
  void CountAnswer() {
    --num_unanswered_;
    ++num_steps_;
    is_asked_current_ = false;
  }
  absl::Status DecideAndTrace(const SelectionResult& result, bool is_last,
                              StepPlan* next_plan);
  // Does with the sequences and their pages what the strategy has decided.
  void ApplyContinuations(const SelectionResult& result, bool is_last,
                          StepPlan* next_plan);
  void ApplyToPages(std::span<const Continuation> beams, bool is_last,
                    StepPlan* next_plan);
  // Takes the sequences on where each has one child, of its own rank, and no
  // page moves. False otherwise, and nothing is done.
  bool KeepOrder(std::span<const Continuation> beams);
  // Of the drafts of the step that was answered; truncates what was rejected.
  // REQUIRES: steps may have drafts.
  void ApplyDrafts(const SelectionResult& result,
                   std::span<const Continuation> beams, bool is_last);
  void ApplyPaths(const SelectionResult& result,
                  std::span<const Continuation> beams, bool is_last);
  // Where drafts are from history, it goes on by the tokens of this step.
  void AdvanceDrafters(std::span<const Continuation> beams);
  // Of so many sequences that live on.
  bool HaveOneLength(size_t num_sequences) const;
  // Tokens that a live sequence has generated; and the last of them, the newest
  // of which is not fed yet.
  int LengthOf(int rank) const;
  const TokenId& LastToken(int rank) const {
    return strategy_->continuations()[rank].token;
  }
  std::vector<TokenId> LastTokens(int rank, int num_tokens) const;
  // One token for each live beam; until the next call.
  std::span<const int> OneEach() const {
    const size_t count = pages_.slots().size();
    if (one_each_.size() < count) one_each_.resize(count, 1);
    return std::span(one_each_).first(count);
  }
  // Keeps the pages of sequences that ended with this step.
  void KeepEnded();
  void Keep(int rank, TokenTree::Node node, int num_generated);
  // All that the live sequences have fed.
  void KeepLive();
  // Of the next token of every beam, for a step ahead: a continuation names
  // one position, so beams that go ahead have one length.
  int PositionAhead() const;

  // Constant after construction.
  const RequestId id_;
  const int64_t num_prompt_tokens_;  // as they were given
  const Request request_;
  const std::shared_ptr<const SelectionParams> selection_params_;
  const SharedList<TokenId> finishing_token_ids_;             // ascending
  const std::shared_ptr<const std::vector<TokenId>> source_;  // may be null
  const int source_length_;   // of its tokens; 0: there is none
  const bool needs_history_;  // of each row, for its processors
  const bool keeps_pages_;
  const bool reports_logprobs_;
  const bool restricts_tokens_;  // to those of a list
  bool speculates_ = false;      // its steps may have drafts, or might at first

  // What each step reads lies together, as far as may be.
  bool is_saving_ = false;
  bool was_planned_ = false;
  bool done_ = false;
  bool deadline_passed_ = false;
  bool only_scores_ = false;  // there is a walk
  // Of Asked(): whether it is that of the next answer; and whether its rows and
  // slots are, whatever these have come to.
  bool is_asked_current_ = false;
  bool has_asked_rows_ = false;
  bool have_one_length_ = true;  // the live sequences
  int num_unanswered_ = 0;       // selections, at most 2
  int64_t num_steps_ = 0;        // answered
  std::unique_ptr<DecodeStrategy> strategy_;
  // The same, of a group that draws a token of each sequence a step and nothing
  // besides: no list of allowed tokens restricts it, and nobody drafts, reports
  // or traces. Otherwise null. Most groups are such.
  SampleStrategy* draws_only_ = nullptr;
  // Of Asked(). Plans share it: from step to step little of it changes.
  std::shared_ptr<PlanSelection> asked_;
  std::unique_ptr<GroupTracer> tracer_;  // null without a trace
  GroupPages pages_;
  GroupPrefill prefill_;  // after the pages: it releases its own first
  GroupDrafts drafts_;

  DraftsInFlight in_flight_;
  // Of beams, instead; null if the step that runs has no paths.
  std::unique_ptr<DraftReplay> replay_;
  std::shared_ptr<const std::vector<TokenId>> prompt_;  // of a draft model
  int64_t num_asked_pages_ = 0;
  std::unique_ptr<ContinuationWalk> walk_;     // null: it generates
  std::vector<TokenLogProb> prompt_logprobs_;  // so far, if reported
  TokenLogProbs logprobs_;                     // as well
  mutable std::vector<int> one_each_;          // memory for each step
};

}  // namespace espalier
