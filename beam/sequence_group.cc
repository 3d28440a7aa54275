#include "beam/sequence_group.h"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/page_count.h"
#include "base/status.h"
#include "beam/strategy/make_strategy.h"
#include "beam/strategy/selection_options.h"
#include "beam/validate_result.h"
#include "exec_request/surviving_candidates.h"

namespace espalier {
namespace {

// Reserves room, so that one more element can be added without failure.
template <typename T>
void ReserveOneMore(std::vector<T>* values) {
  if (values->size() == values->capacity()) {
    values->reserve(std::max<size_t>(1, 2 * values->capacity()));
  }
}

}  // namespace

SequenceGroup::SequenceGroup(RequestId id, PreparedRequest prepared,
                             PagePool* pool, SequenceIdSource* ids,
                             PrefixTree* tree, TraceSink* trace)
    : num_prompt_tokens_(prepared.num_prompt_tokens()),
      request_(std::move(prepared.request)),
      keeps_pages_(tree != nullptr && request_.params.prefix_cache),
      only_scores_(prepared.walk != nullptr),
      writer_(id, request_, prepared.selection_params),
      search_(request_, *prepared.selection_params,
              std::move(prepared.constraint), std::move(prepared.text)),
      pages_(NumSlots(request_.params),
             GroupPages::WorstCase(request_, pool->page_size(),
                                   prepared.source_length()),
             pool, ids, prepared.source),
      prefill_(&request_, std::move(prepared.roots), &pages_, tree),
      speculation_(&request_, &search_, &pages_, &writer_,
                   std::move(prepared.drafter)),
      scoring_(id, &request_, &pages_, std::move(prepared.walk)) {
  if (speculates() || trace != nullptr) search_.DisableContinueAll();
  if (trace != nullptr && !only_scores_) {
    const std::span<const TokenId> prompt = prepared.source != nullptr
                                                ? prepared.source->tokens()
                                                : request_.prompt_tokens;
    tracer_ = std::make_unique<GroupTracer>(id, request_, prompt, trace);
  }
  decodes_plainly_ = tracer_ == nullptr && prepared.source == nullptr;
}

int64_t SequenceGroup::num_pending_tokens() const {
  if (done_ || is_preempted()) return 0;
  if (!prefilling()) return num_live_beams();
  return prefill_.num_pending_tokens() +
         (only_scores() ? scoring_.num_pending_tokens() : 0);
}

void SequenceGroup::MatchPrefix(int64_t num_promised, StepPlan* plan) {
  if (is_walking()) return scoring_.Rewind(plan);
  const int64_t num_without_logits = scoring_.NumWithoutLogits();
  if (tracer_ == nullptr)
    return prefill_.Match(num_without_logits, num_promised, plan);
  const std::vector<HeldPages> before = pages_.PagesBySlot();
  const size_t num_copies = plan->page_copies.size();
  prefill_.Match(num_without_logits, num_promised, plan);
  tracer_->RecordMatch(before, pages_.PagesBySlot(),
                       std::span(plan->page_copies).subspan(num_copies));
}

int64_t SequenceGroup::NumPagesForStep(int max_tokens) const {
  if (prefilling()) {
    return is_walking() ? scoring_.NumPagesForStep(max_tokens)
                        : prefill_.NumPagesToFeed(max_tokens);
  }
  if (has_to_draft()) return 0;  // drafts count them
  if (outstanding()) return pages_.NumPagesToReserveTails();
  if (repeats_step_) return 0;
  return pages_.NumPagesToAppend(OneEach());
}

int64_t SequenceGroup::NumPagesSoon() const {
  if (done_ || is_preempted()) return 0;
  if (!prefilling() && num_steps_ > 0) return num_live_beams();
  if (only_scores()) return scoring_.NumPagesLeft();
  return prefill_.NumPagesToFeedAll() + pages_.num_slots();
}

[[gnu::noinline]] void SequenceGroup::AddTokenRows(
    std::span<const Continuation> live, StepPlan* plan) const {
  for (size_t rank = 0; rank < live.size(); ++rank) {
    writer_.AddTokenRow(pages_.sequence(static_cast<int>(rank)),
                        live[rank].token, plan);
  }
}

absl::Status SequenceGroup::PlanTokens(StepPlan* plan) {
  if (!std::exchange(repeats_step_, false)) {
    RETURN_IF_ERROR(pages_.AppendOneEach(&plan->page_copies));
  }
  writer_.OnPlanned();
  writer_.AddSelection(plan->num_logits, search_, pages_, plan);
  const std::span<const Continuation> live = strategy().continuations();
  if (live.size() == 1) {  // the common case
    writer_.AddTokenRow(pages_.sequence(0), live[0].token, plan);
  } else {
    AddTokenRows(live, plan);
  }
  if (speculates()) speculation_.OnPlainStep();
  return absl::OkStatus();
}

void SequenceGroup::AddSource(int first_row, StepPlan* plan) {
  const int num_rows = static_cast<int>(plan->rows.size()) - first_row;
  plan->sources.push_back(pages_.source().Describe(first_row, num_rows));
}

absl::Status SequenceGroup::PlanDecodeSlowPath(StepPlan* plan) {
  if (outstanding() || tracer_ != nullptr) return PlanStep(1, plan);
  prefill_.OnPlan();
  const int first_row = static_cast<int>(plan->rows.size());
  RETURN_IF_ERROR(PlanTokens(plan));
  AddSource(first_row, plan);
  return absl::OkStatus();
}

bool SequenceGroup::CanPlanAhead() const {
  if (writer_.num_outstanding() > 1 || num_ignored_ > 0) return false;
  if (speculation_.CanDraftAhead()) return true;
  if (!speculation_.AllowsPlainAhead()) return false;
  // The step generates the token after the one whose result is outstanding.
  return search_.LengthOf(0) + 2 <=
             strategy().stopping_criteria().max_length() &&
         CanRunAhead(strategy(), *writer_.params());
}

absl::Status SequenceGroup::PlanStep(int max_tokens, StepPlan* plan,
                                     int max_logits, int max_prefill_rows,
                                     const DraftRoom& draft_room) {
  CHECK(can_plan()) << "request " << id() << " is done or has to wait";
  CHECK_GE(max_tokens, 1) << "tokens to feed";
  CHECK_GE(max_logits, 1) << "rows of logits";
  prefill_.OnPlan();
  const size_t num_copies = plan->page_copies.size();
  const auto first_row = static_cast<int>(plan->rows.size());
  RETURN_IF_ERROR(
      PlanRows(max_tokens, plan, max_logits, max_prefill_rows, draft_room));
  if (pages_.source().has_source() && std::ssize(plan->rows) > first_row) {
    AddSource(first_row, plan);
  }
  if (tracer_ != nullptr) {
    tracer_->RecordCopies(std::span(plan->page_copies).subspan(num_copies));
  }
  return absl::OkStatus();
}

absl::Status SequenceGroup::PlanRows(int max_tokens, StepPlan* plan,
                                     int max_logits, int max_prefill_rows,
                                     const DraftRoom& draft_room) {
  if (prefilling()) {
    const int max_rows =
        EndsPrompt(max_tokens, max_logits) ? 1 : max_prefill_rows;
    CHECK_GE(max_rows, 1) << "rows of a prefill";
    if (is_walking()) {
      return scoring_.Walk(std::min(max_tokens, max_logits), max_logits,
                           max_rows, draft_room.num_pages, &writer_, plan);
    }
    return PlanPrefill(max_tokens, max_logits, max_rows, plan);
  }
  if (has_to_draft()) return speculation_.PlanDraftsAhead(draft_room, plan);
  if (outstanding()) return PlanNextAsync(plan);
  if (speculation_.is_on()) {
    ASSIGN_OR_RETURN(const bool is_planned,
                     speculation_.Plan(draft_room, plan));
    if (is_planned) return absl::OkStatus();
  }
  return PlanTokens(plan);
}

bool SequenceGroup::EndsPrompt(int max_tokens, int max_logits) const {
  if (!prefilling() || !prefill_.feeds_prompt() || only_scores()) return false;
  const int64_t num_pending = prefill_.num_pending_tokens();
  return num_pending <= prefill_.MaxTokensBesideSource(max_tokens) &&
         (!request_.params.prompt_logprobs ||
          num_pending - scoring_.NumNextWithoutLogits() <= max_logits);
}

int SequenceGroup::NumAskedAtOnceIn(int max_tokens) const {
  const bool leaves_prompt =
      prefill_.feeds_prompt() && prefill_.num_pending_tokens() >
                                     prefill_.MaxTokensBesideSource(max_tokens);
  return leaves_prompt ? 0 : max_asked_at_once();
}

absl::Status SequenceGroup::PlanPrefill(int max_tokens, int max_logits,
                                        int max_rows, StepPlan* plan) {
  const bool is_prompt = prefill_.feeds_prompt();
  const bool is_scored = is_prompt && scoring_.scores_prompt();
  if (is_scored) {
    // Its last row may also score tokens after the prompt.
    const int num_scored = std::max(max_logits - max_asked_at_once(), 1);
    max_tokens = static_cast<int>(std::min<int64_t>(
        max_tokens, scoring_.NumNextWithoutLogits() + num_scored));
  }
  const int first_logits = plan->num_logits;
  const auto add_row = [&](int rank, const TokenPath& tokens) {
    const Sequence& sequence = pages_.sequence(rank);
    const bool is_last =
        is_prompt && sequence.num_tokens() == request_.prompt_tokens.size();
    const int num_tokens = static_cast<int>(tokens.size());
    const int first = sequence.num_tokens() - num_tokens;
    const bool is_asked = is_last && max_asked_at_once() != 0;
    const bool selects = is_last && !only_scores();
    writer_.AddRow(sequence, tokens,
                   is_scored ? scoring_.NumLogits(first, num_tokens)
                             : (selects || is_asked ? 1 : 0),
                   plan);
  };
  writer_.OnPlanned();
  RETURN_IF_ERROR(prefill_.Feed(max_tokens, max_rows, plan, add_row));
  const int num_logits_rows = plan->num_logits - first_logits;
  if (is_scored) scoring_.AddPrompt(first_logits, num_logits_rows, plan);
  if (!is_prompt || !prefill_.done()) return absl::OkStatus();
  const int last_logits = first_logits + num_logits_rows - 1;
  if (only_scores()) {
    scoring_.Begin(last_logits, plan);
  } else {
    writer_.AddSelection(last_logits, search_, pages_, plan);
    writer_.InvalidateRows();  // each sequence has a row from now on
  }
  return absl::OkStatus();
}

absl::Status SequenceGroup::PlanNextAsync(StepPlan* plan) {
  const PlanSelection& selection = writer_.Selection(search_, pages_);
  GroupContinuation continuation = {
      .request = id(),
      .position = PositionAhead(),
      .kind = selection.kind(),
      .num_candidates = strategy().num_candidates_ahead(selection),
      .num_generated = selection.num_generated + 1,
      .params = writer_.params()};
  ASSIGN_OR_RETURN(continuation.tail_pages, pages_.ReserveTails());
  writer_.AddContinuation(std::move(continuation), plan);
  return absl::OkStatus();
}

int SequenceGroup::PositionAhead() const {
  const int position = pages_.sequence(0).num_tokens();
  for (int rank = 1; rank < num_live_beams(); ++rank) {
    CHECK_EQ(pages_.sequence(rank).num_tokens(), position)
        << "length of beam " << rank << " of request " << id();
  }
  return position;
}

absl::Status SequenceGroup::ValidateResult(const SelectionResult& result,
                                           int vocab_size) {
  if (num_ignored_ > 0) return absl::OkStatus();
  return speculation_.verifies_drafts()
             ? speculation_.ValidateResult(result, vocab_size)
             : espalier::ValidateResult(writer_.Selection(search_, pages_),
                                        result, vocab_size);
}

std::optional<ListWork> SequenceGroup::AwaitLists() {
  CHECK(!done_) << "request " << id() << " is done";
  awaited_lists_ = nullptr;  // those of a step before, if it was preempted
  if (!is_constrained()) return std::nullopt;
  const bool has_masks = writer_.params()->constraint.has_value();
  if (has_masks && tracer_ == nullptr && !strategy().needs_lists()) {
    return std::nullopt;
  }
  ListWork work = {.request = id(),
                   .constraint = strategy().stopping_criteria().constraint(),
                   .places = search_.UnlistedPlaces(),
                   .is_awaited = {}};
  if (work.places.empty()) return std::nullopt;
  awaited_lists_ = std::make_shared<char>();
  work.is_awaited = awaited_lists_;
  return work;
}

inline bool SequenceGroup::KeepOrder(std::span<const Continuation> beams) {
  if (std::ssize(beams) != num_live_beams()) return false;
  for (size_t rank = 0; rank < beams.size(); ++rank) {
    if (beams[rank].parent_rank != static_cast<int>(rank)) return false;
  }
  return pages_.KeepOrder();
}

absl::Status SequenceGroup::Decide(const SelectionResult& result, bool is_last,
                                   std::vector<Decision>* decisions,
                                   StepPlan* next_plan) {
  const absl::Status status = search_.Advance(result, decisions);
  if (!status.ok()) {
    Drop(next_plan);
    return ExplainNoToken(status, request_.params);
  }
  ApplyContinuations(result, is_last, next_plan);
  return absl::OkStatus();
}

void SequenceGroup::ApplyContinuations(const SelectionResult& result,
                                       bool is_last, StepPlan* next_plan) {
  const std::span<const Continuation> live = strategy().continuations();
  KeepEnded();
  if (speculates()) {
    // The prompt's step cannot have drafts.
    speculation_.Advance(result, is_last, /*might_draft=*/num_steps_ > 1);
  }
  if (live.empty()) return Drop(next_plan);
  if (!speculation_.has_rows() && KeepOrder(live)) return;
  writer_.InvalidateRows();
  ApplyToPages(live, is_last, next_plan);
}

inline absl::Status SequenceGroup::AdvanceStep(const SelectionResult& result,
                                               bool is_last,
                                               StepPlan* next_plan) {
  if (tracer_ != nullptr) return DecideAndTrace(result, is_last, next_plan);
  if (!search_.reports_logprobs()) {
    return Decide(result, is_last, nullptr, next_plan);
  }
  std::vector<Decision> decisions;
  return Decide(result, is_last, &decisions, next_plan);
}

absl::Status SequenceGroup::ApplyAnyResult(const SelectionResult& result,
                                           int vocab_size, StepPlan* next_plan,
                                           SearchWatcher* watcher) {
  RETURN_IF_ERROR(ValidateResult(result, vocab_size));
  return Advance(result, next_plan, watcher);
}

absl::Status SequenceGroup::Advance(const SelectionResult& result,
                                    StepPlan* next_plan,
                                    SearchWatcher* watcher) {
  CHECK(!done_) << "request " << id() << " is done";
  CHECK(outstanding()) << "request " << id() << " asked for nothing";
  if (num_ignored_ > 0) {
    --num_ignored_;
    writer_.OnResult();
    return absl::OkStatus();
  }
  if (is_constrained() &&
      LacksBeams(writer_.Selection(search_, pages_), result.candidates)) {
    RepeatStep();
    return absl::OkStatus();
  }
  CountResult();
  if (result.further.empty() && watcher == nullptr) {
    return AdvanceStep(result, /*is_last=*/true, next_plan);
  }
  return AdvanceSteps(result, next_plan, watcher);
}

void SequenceGroup::RepeatStep() {
  writer_.OnResult();
  search_.AskForAll();
  num_ignored_ = static_cast<int8_t>(writer_.num_outstanding());
  if (is_preempted()) return;  // it resumes before this step
  pages_.WithdrawTails();
  repeats_step_ = true;
}

absl::Status SequenceGroup::AdvanceSteps(const SelectionResult& result,
                                         StepPlan* next_plan,
                                         SearchWatcher* watcher) {
  const auto advance = [&](const SelectionResult& step, bool is_last) {
    const absl::Status status = AdvanceStep(step, is_last, next_plan);
    if (status.ok() && watcher != nullptr) {
      watcher->OnStep(strategy(), search_.logprobs());
    }
    return status;
  };
  RETURN_IF_ERROR(advance(result, result.further.empty()));
  for (size_t i = 0; i < result.further.size() && !done_; ++i) {
    RETURN_IF_ERROR(advance(result.further[i], i + 1 == result.further.size()));
  }
  return absl::OkStatus();
}

absl::Status SequenceGroup::DecideAndTrace(const SelectionResult& result,
                                           bool is_last, StepPlan* next_plan) {
  tracer_->RecordPages(pages_.PagesBySlot(), pages_.pool(), prefill_.counts());
  const std::vector<int> parents(pages_.slots().begin(), pages_.slots().end());
  if (is_constrained()) {
    std::vector<StoppingCriteria::Progress> live;
    strategy().ForEachProgress(
        [&](const StoppingCriteria::Progress& p) { live.push_back(p); });
    tracer_->RecordLegal(strategy().stopping_criteria(), std::move(live),
                         result, parents);
  }
  std::vector<Decision> decisions;
  const absl::Status status = Decide(result, is_last, &decisions, next_plan);
  tracer_->RecordStep(result, decisions, parents, strategy().continuations(),
                      pages_.slots());
  return status;
}

void SequenceGroup::ApplyToPages(std::span<const Continuation> beams,
                                 bool is_last, StepPlan* next_plan) {
  if (!is_last) return speculation_.FollowRows();
  if (speculation_.has_rows()) speculation_.MergeRows(next_plan);
  SmallVector<int> parent_ranks(beams.size());
  for (size_t rank = 0; rank < beams.size(); ++rank) {
    parent_ranks[rank] = beams[rank].parent_rank;
  }
  pages_.Reorder(parent_ranks, next_plan);
}

void SequenceGroup::KeepEnded() {
  if (!keeps_pages_ || is_preempted() || !prefill_.is_filled()) return;
  for (const EndedSequence& ended : strategy().ended()) {
    // Before the first result there is one sequence, whatever the number of
    // ended ones.
    if (ended.rank >= num_live_beams()) continue;
    Keep(ended.rank, ended.node, strategy().tree().depth(ended.node));
  }
}

// Caching is optional: on std::bad_alloc the pages are released uncached.
void SequenceGroup::Keep(int rank, TokenTree::Node node,
                         int num_generated) try {
  const std::vector<TokenId> generated = strategy().tree().Path(node);
  const int num_prompt = static_cast<int>(request_.prompt_tokens.size());
  prefill_.Keep(pages_.sequence(rank).pages,
                {request_.prompt_tokens, generated},
                num_prompt + num_generated);
} catch (const std::bad_alloc&) {
}

void SequenceGroup::KeepLive() {
  if (!keeps_pages_ || num_steps_ == 0 || !prefill_.done() ||
      !prefill_.is_filled()) {
    return;
  }
  for (int rank = 0; rank < num_live_beams(); ++rank) {
    const TokenTree::Node node = strategy().node(rank);
    // The last token is not fed, or its step has no result yet.
    Keep(rank, node, strategy().tree().depth(node) - 1);
  }
}

void SequenceGroup::Preempt(const PageSaving& saving, bool names_end,
                            StepPlan* plan) {
  CHECK(!done_ && !is_preempted()) << "request " << id() << " holds nothing";
  KeepLive();
  if (tracer_ != nullptr) {
    tracer_->RecordPreemption(pages_.PagesBySlot(), pages_.slots(),
                              prefill_.counts());
  }
  if (names_end) ReserveOneMore(&plan->ended);
  // Its sequences share one stem.
  is_saving_ = pages_.Preempt(
      num_beams(), pages_.has_rows() ? PageSaving{} : saving, names_end, plan);
  if (names_end) plan->ended.push_back(id());
  prefill_.Stop();
  repeats_step_ = false;
  writer_.OnPreempt();
}

void SequenceGroup::DropSaved() {
  is_saving_ = false;
  pages_.DropSaved();
}

void SequenceGroup::Resume() {
  CHECK(is_preempted() && !has_plan_in_flight()) << "request " << id();
  std::vector<std::vector<TokenId>> branches;
  if (num_steps_ > 0) {
    for (int rank = 0; rank < num_live_beams(); ++rank) {
      branches.emplace_back();
      strategy().AppendTokens(rank, &branches.back());
      branches.back().pop_back();  // not fed yet
    }
  }
  if (only_scores() && scoring_.has_begun()) {
    branches.emplace_back(scoring_.stem().begin(), scoring_.stem().end());
  }
  pages_.Restart();
  writer_.InvalidateSelection();  // sequences may get other slots
  prefill_.Restart(std::move(branches));
}

int64_t SequenceGroup::NumPagesToResume() const {
  const int page_size = pages_.pool().page_size();
  const int64_t num_prompt = std::ssize(request_.prompt_tokens);
  int64_t num_pages = pages_.source().num_missing() + num_prompt / page_size;
  for (int rank = 0; rank < num_live_beams(); ++rank) {
    const int64_t num_generated = only_scores() ? std::ssize(scoring_.stem())
                                  : num_steps_ == 0 ? 0
                                                    : search_.LengthOf(rank);
    num_pages += NumPages(num_prompt + num_generated, page_size) -
                 num_prompt / page_size;
  }
  return std::min(num_pages, pages_.max_pages());
}

void SequenceGroup::FinishEarly(FinishReason reason, StepPlan* next_plan) {
  CHECK(!done_ && has_output()) << "request " << id() << " has no output";
  if (!is_preempted()) KeepLive();
  search_.FinishLive(reason);
  Drop(next_plan);
}

void SequenceGroup::Drop(StepPlan* next_plan) {
  if (done_) return;
  if (was_planned() && next_plan != nullptr) {
    ReserveOneMore(&next_plan->ended);
    pages_.Release(&next_plan->finished);
    next_plan->ended.push_back(id());
  } else {
    pages_.Release(nullptr);
  }
  prefill_.Stop();
  awaited_lists_ = nullptr;
  is_saving_ = false;
  done_ = true;
}

void SequenceGroup::RecordEnd(const absl::StatusOr<Result>& result) {
  CHECK(done_) << "request " << id() << " is not done";
  if (tracer_ != nullptr) tracer_->RecordEnd(result);
}

Result SequenceGroup::TakeResult() {
  CHECK(done_) << "request " << id() << " is not done";
  Result result;
  result.usage.num_prompt_tokens = num_prompt_tokens_;
  result.usage.num_cached_tokens = prefill_.counts().num_cached;
  result.usage.num_steps = num_steps_;
  result.usage.num_drafted_tokens = num_drafted_tokens();
  result.usage.num_accepted_tokens = num_accepted_tokens();
  if (DrawsAtRandom(request_.params)) result.seed = request_.params.seed;
  search_.FillResult(&result);
  scoring_.FillResult(&result);
  return result;
}

}  // namespace espalier
