// SequenceGroup, part: applies results, and caches or releases pages.
// sequence_group_plan.cc writes rows into plans, sequence_group_drafts.cc
// handles drafts.
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

namespace espalier {
namespace {

constexpr int kAnyNumber = std::numeric_limits<int>::max();

// Reserves room, so that one more element can be added without failure.
template <typename T>
void ReserveOneMore(std::vector<T>* values) {
  if (values->size() == values->capacity()) {
    values->reserve(std::max<size_t>(1, 2 * values->capacity()));
  }
}

// Returns a selection with the fields that are constant for all steps.
std::shared_ptr<PlanSelection> MakeSelection(
    RequestId id, const GenerationParams& request,
    std::shared_ptr<const SelectionParams> params,
    std::span<const TokenId> eos_token_ids) {
  auto selection = std::make_shared<PlanSelection>();
  selection->request = id;
  selection->params = std::move(params);
  selection->num_slots = NumSlots(request);
  selection->eos_token_ids.assign(eos_token_ids.begin(), eos_token_ids.end());
  return selection;
}

// Returns the source that an encoder reads for the request, or null.
std::shared_ptr<const std::vector<TokenId>> MakeSource(
    const Request& request, const SourceLayout& layout) {
  if (layout.num_tokens == 0) return nullptr;
  const auto begin = request.prompt_tokens.begin();
  return std::make_shared<const std::vector<TokenId>>(
      begin, begin + layout.num_tokens);
}

}  // namespace

SequenceGroup::SequenceGroup(RequestId id, PreparedRequest prepared,
                             PagePool* pool, SequenceIdSource* ids,
                             PrefixTree* tree, TraceSink* trace)
    : id_(id),
      num_prompt_tokens_(prepared.num_prompt_tokens()),
      request_(std::move(prepared.request)),
      selection_params_(std::move(prepared.selection_params)),
      finishing_token_ids_(FinishingTokenIds(request_.params)),
      source_(MakeSource(request_, prepared.source)),
      source_length_(prepared.source.num_tokens),
      needs_history_(selection_params_->processors.needs_history()),
      keeps_pages_(tree != nullptr && request_.params.prefix_cache),
      reports_logprobs_(selection_params_->num_logprobs >= 0),
      restricts_tokens_(prepared.allowed != nullptr),
      strategy_(MakeStrategy(request_.params, std::move(prepared.allowed),
                             std::move(prepared.text))),
      asked_(MakeSelection(id_, request_.params, selection_params_,
                           finishing_token_ids_)),
      pages_(NumSlots(request_.params),
             GroupPages::WorstCase(request_, pool->page_size()), pool, ids),
      prefill_(&request_, prepared.source.end, &pages_, tree),
      drafts_(request_.params, strategy_->supports_drafts(),
              std::move(prepared.drafter)),
      walk_(std::move(prepared.walk)) {
  only_scores_ = walk_ != nullptr;
  speculates_ = drafts_.can_draft();
  if (selection_params_->kind == SelectionKind::kDraws && !restricts_tokens_ &&
      !reports_logprobs_ && !speculates_ && trace == nullptr) {
    draws_only_ = static_cast<SampleStrategy*>(strategy_.get());
  }
  if (trace != nullptr && !only_scores_) {
    tracer_ =
        std::make_unique<GroupTracer>(id_, request_, num_prompt_tokens_, trace);
  }
}

int64_t SequenceGroup::num_pending_tokens() const {
  if (done_ || is_preempted()) return 0;
  if (!prefilling()) return num_live_beams();
  return prefill_.num_pending_tokens() +
         (only_scores() ? walk_->num_pending_tokens() : 0);
}

void SequenceGroup::MatchPrefix(int64_t num_promised, StepPlan* plan) {
  if (is_walking()) return RewindWalk(plan);
  const int64_t num_without_logits =
      NumWithoutLogits(request_) + std::ssize(prompt_logprobs_);
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
    if (!is_walking()) return prefill_.NumPagesToFeed(max_tokens);
    const int next = walk_->NumNext(max_tokens, kAnyNumber);
    return pages_.NumPagesToAppend(std::span(&next, 1));
  }
  if (has_to_draft()) return 0;  // drafts count them
  if (outstanding()) return pages_.NumPagesToReserveTails();
  return pages_.NumPagesToAppend(OneEach());
}

int64_t SequenceGroup::NumPagesSoon() const {
  if (done_ || is_preempted()) return 0;
  if (!prefilling() && num_steps_ > 0) return num_live_beams();
  if (only_scores()) {
    const int64_t num_tokens =
        std::ssize(request_.prompt_tokens) + walk_->max_length();
    const int64_t num_held = std::ssize(pages_.sequence(0).pages.pages());
    return std::max<int64_t>(
        NumPages(num_tokens, pages_.pool().page_size()) - num_held, 0);
  }
  return prefill_.NumPagesToFeedAll() + pages_.num_slots();
}

int64_t SequenceGroup::NumPromptLogprobs() const {
  if (!request_.params.prompt_logprobs) return 0;
  return std::ssize(request_.prompt_tokens) - FirstLogprob(request_);
}

// Scores of the prompt come first, even in a plan with both kinds.
absl::Status SequenceGroup::TakeScoring(const PromptLogprobsResult& result,
                                        size_t num_tokens, int vocab_size) {
  if (std::ssize(prompt_logprobs_) < NumPromptLogprobs()) {
    return TakePromptLogprobs(result, num_tokens, vocab_size);
  }
  return TakeWalked(result, num_tokens, vocab_size);
}

absl::Status SequenceGroup::TakePromptLogprobs(
    const PromptLogprobsResult& result, size_t num_tokens, int vocab_size) {
  const std::vector<TokenLogProb>& logprobs = result.logprobs;
  const auto scored =
      std::span(request_.prompt_tokens)
          .subspan(FirstLogprob(request_) + prompt_logprobs_.size(),
                   num_tokens);
  const int num_best = SaturateToInt(*request_.params.prompt_logprobs);
  RETURN_IF_ERROR(CheckLogProbs(logprobs, scored, num_best, vocab_size));
  prompt_logprobs_.insert(prompt_logprobs_.end(), logprobs.begin(),
                          logprobs.end());
  return absl::OkStatus();
}

absl::Status SequenceGroup::TakeWalked(const PromptLogprobsResult& result,
                                       size_t num_tokens, int vocab_size) {
  if (result.logprobs.size() != num_tokens) {
    return Internal("a step answered with ", result.logprobs.size(),
                    " log-probabilities of ", num_tokens, " tokens");
  }
  for (const TokenLogProb& logprob : result.logprobs) {
    const TokenId token = walk_->NextToScore();
    RETURN_IF_ERROR(CheckLogProbs(std::span(&logprob, 1), std::span(&token, 1),
                                  /*num_best=*/1, vocab_size));
    walk_->Score(logprob);
  }
  return absl::OkStatus();
}

absl::Status SequenceGroup::ValidateResult(const SelectionResult& result,
                                           int vocab_size) {
  if (in_flight_.empty() && replay_ == nullptr) {
    return espalier::ValidateResult(Asked(), result, vocab_size);
  }
  const bool were_ahead = in_flight_.num_running() > 0;
  if (were_ahead) {
    RETURN_IF_ERROR(in_flight_.CheckNumDrafted(result, num_live_beams()));
  }
  Asked();
  PlanSelection& asked = EditShared(&asked_);
  if (!in_flight_.drafted().empty()) {
    strategy_->DescribeDrafts(in_flight_.drafted(), &asked);
  }
  if (were_ahead) {
    strategy_->DescribeDrafts(
        DraftsInFlight::DraftedAhead(result, num_live_beams()), &asked);
  }
  if (replay_ != nullptr) DescribePaths(&asked);
  is_asked_current_ = false;  // the drafts belong to this result alone
  const absl::Status status =
      espalier::ValidateResult(asked, result, vocab_size,
                               replay_ != nullptr ? &replay_->tree() : nullptr);
  asked.drafts.clear();
  asked.ranks.clear();
  return status;
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
  is_asked_current_ = false;
  const absl::Status status = strategy_->Advance(result, decisions);
  if (reports_logprobs_) logprobs_.Take(result, *decisions);
  if (!status.ok()) {
    Drop(next_plan);
    return ExplainNoToken(status, request_.params);
  }
  ApplyContinuations(result, is_last, next_plan);
  return absl::OkStatus();
}

void SequenceGroup::ApplyContinuations(const SelectionResult& result,
                                       bool is_last, StepPlan* next_plan) {
  const std::span<const Continuation> live = strategy_->continuations();
  KeepEnded();
  if (speculates_) AdvanceDrafts(result, live, is_last);
  if (live.empty()) return Drop(next_plan);
  if (replay_ == nullptr && KeepOrder(live)) return;
  has_asked_rows_ = false;
  ApplyToPages(live, is_last, next_plan);
  if (is_last) replay_ = nullptr;
}

void SequenceGroup::AdvanceDrafts(const SelectionResult& result,
                                  std::span<const Continuation> live,
                                  bool is_last) {
  if (drafts_.can_draft()) {
    has_asked_rows_ = false;
    ApplyDrafts(result, live, is_last);
  } else if (!have_one_length_) {  // drafts were turned off
    has_asked_rows_ = false;
    have_one_length_ = HaveOneLength(live.size());
  }
}

inline absl::Status SequenceGroup::AdvanceStep(const SelectionResult& result,
                                               bool is_last,
                                               StepPlan* next_plan) {
  if (tracer_ != nullptr) return DecideAndTrace(result, is_last, next_plan);
  if (!reports_logprobs_) {
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
  CHECK(!done_) << "request " << id_ << " is done";
  CHECK_GE(num_unanswered_, 1) << "request " << id_ << " asked for nothing";
  CountAnswer();
  if (result.further.empty() && watcher == nullptr) {
    return AdvanceStep(result, /*is_last=*/true, next_plan);
  }
  return AdvanceSteps(result, next_plan, watcher);
}

absl::Status SequenceGroup::AdvanceSteps(const SelectionResult& result,
                                         StepPlan* next_plan,
                                         SearchWatcher* watcher) {
  const auto advance = [&](const SelectionResult& step, bool is_last) {
    const absl::Status status = AdvanceStep(step, is_last, next_plan);
    if (status.ok() && watcher != nullptr) {
      watcher->OnStep(*strategy_, reports_logprobs_ ? &logprobs_ : nullptr);
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
  std::vector<Decision> decisions;
  const absl::Status status = Decide(result, is_last, &decisions, next_plan);
  tracer_->RecordStep(result, decisions, parents, strategy_->continuations(),
                      pages_.slots());
  return status;
}

void SequenceGroup::ApplyToPages(std::span<const Continuation> beams,
                                 bool is_last, StepPlan* next_plan) {
  if (!is_last) return pages_.FollowRows(replay_->rows());
  if (replay_ != nullptr) {
    const size_t num_prompt = request_.prompt_tokens.size();
    pages_.MergeRows(static_cast<int>(num_prompt) + LengthOf(0) - 1, next_plan);
  }
  SmallVector<int> parent_ranks(beams.size());
  for (size_t rank = 0; rank < beams.size(); ++rank) {
    parent_ranks[rank] = beams[rank].parent_rank;
  }
  pages_.Reorder(parent_ranks, next_plan);
}

bool SequenceGroup::HaveOneLength(size_t num_sequences) const {
  for (size_t rank = 1; rank < num_sequences; ++rank) {
    if (LengthOf(static_cast<int>(rank)) != LengthOf(0)) return false;
  }
  return true;
}

int SequenceGroup::LengthOf(int rank) const {
  return strategy_->tree().depth(strategy_->node(rank));
}

std::vector<TokenId> SequenceGroup::LastTokens(int rank, int num_tokens) const {
  std::vector<TokenId> tokens(num_tokens);
  TokenTree::Node node = strategy_->node(rank);
  for (auto token = tokens.rbegin(); token != tokens.rend(); ++token) {
    *token = strategy_->tree().token(node);
    node = strategy_->tree().parent(node);
  }
  return tokens;
}

void SequenceGroup::KeepEnded() {
  if (!keeps_pages_ || is_preempted() || !prefill_.is_filled()) return;
  for (const EndedSequence& ended : strategy_->ended()) {
    // Before the first result there is one sequence, whatever the number of
    // ended ones.
    if (ended.rank >= num_live_beams()) continue;
    Keep(ended.rank, ended.node, strategy_->tree().depth(ended.node));
  }
}

// Caching is optional: on std::bad_alloc the pages are released uncached.
void SequenceGroup::Keep(int rank, TokenTree::Node node,
                         int num_generated) try {
  const std::vector<TokenId> generated = strategy_->tree().Path(node);
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
    const TokenTree::Node node = strategy_->node(rank);
    // The last token is not fed, or its step has no result yet.
    Keep(rank, node, strategy_->tree().depth(node) - 1);
  }
}

void SequenceGroup::Preempt(const PageSaving& saving, bool names_end,
                            StepPlan* plan) {
  CHECK(!done_ && !is_preempted()) << "request " << id_ << " holds nothing";
  KeepLive();
  if (tracer_ != nullptr) {
    tracer_->RecordPreemption(pages_.PagesBySlot(), pages_.slots(),
                              prefill_.counts());
  }
  if (names_end) ReserveOneMore(&plan->ended);
  // Its sequences share one stem.
  is_saving_ = pages_.Preempt(
      num_beams(), pages_.has_rows() ? PageSaving{} : saving, names_end, plan);
  if (names_end) plan->ended.push_back(id_);
  prefill_.Stop();
  was_planned_ = false;
}

void SequenceGroup::DropSaved() {
  is_saving_ = false;
  pages_.DropSaved();
}

void SequenceGroup::Resume() {
  CHECK(is_preempted() && !has_plan_in_flight()) << "request " << id_;
  std::vector<std::vector<TokenId>> branches;
  if (num_steps_ > 0) {
    for (int rank = 0; rank < num_live_beams(); ++rank) {
      branches.emplace_back();
      strategy_->AppendTokens(rank, &branches.back());
      branches.back().pop_back();  // not fed yet
    }
  }
  if (only_scores() && walk_->has_begun()) {
    branches.emplace_back(walk_->stem().begin(), walk_->stem().end());
  }
  pages_.Restart();
  is_asked_current_ = false;  // sequences may get other slots
  has_asked_rows_ = false;
  prefill_.Restart(std::move(branches));
}

int64_t SequenceGroup::NumPagesToResume() const {
  const int page_size = pages_.pool().page_size();
  const int64_t num_prompt = std::ssize(request_.prompt_tokens);
  int64_t num_pages = num_prompt / page_size;
  for (int rank = 0; rank < num_live_beams(); ++rank) {
    const int64_t num_generated =
        only_scores()     ? std::ssize(walk_->stem())
        : num_steps_ == 0 ? 0
                          : strategy_->tree().depth(strategy_->node(rank));
    num_pages += NumPages(num_prompt + num_generated, page_size) -
                 num_prompt / page_size;
  }
  return std::min(num_pages, pages_.max_pages());
}

void SequenceGroup::FinishEarly(FinishReason reason, StepPlan* next_plan) {
  CHECK(!done_ && has_output()) << "request " << id_ << " has no output";
  if (!is_preempted()) KeepLive();
  strategy_->FinishLive(reason);
  deadline_passed_ = reason == FinishReason::kDeadline;
  is_asked_current_ = false;
  Drop(next_plan);
}

void SequenceGroup::Drop(StepPlan* next_plan) {
  if (done_) return;
  if (was_planned() && next_plan != nullptr) {
    ReserveOneMore(&next_plan->ended);
    pages_.Release(&next_plan->finished);
    next_plan->ended.push_back(id_);
  } else {
    pages_.Release(nullptr);
  }
  prefill_.Stop();
  is_saving_ = false;
  done_ = true;
}

void SequenceGroup::RecordEnd(const absl::StatusOr<Result>& result) {
  CHECK(done_) << "request " << id_ << " is not done";
  if (tracer_ != nullptr) tracer_->RecordEnd(result);
}

Result SequenceGroup::TakeResult() const {
  CHECK(done_) << "request " << id_ << " is not done";
  Result result;
  result.hypotheses = strategy_->Hypotheses();
  result.threshold = strategy_->threshold();
  result.usage.num_prompt_tokens = num_prompt_tokens_;
  result.usage.num_cached_tokens =
      std::min(prefill_.counts().num_cached, num_prompt_tokens_);
  result.usage.num_steps = num_steps_;
  result.usage.num_drafted_tokens = drafts_.num_drafted();
  result.usage.num_accepted_tokens = drafts_.num_accepted();
  if (DrawsAtRandom(request_.params)) result.seed = request_.params.seed;
  result.deadline_passed = deadline_passed_;
  if (request_.params.prompt_logprobs) {
    result.prompt_logprobs = prompt_logprobs_;
  }
  if (!request_.continuations.empty()) {
    result.continuations = walk_->Scores(request_.continuations);
  } else if (only_scores()) {
    result.hypotheses = {{.tokens = {}}};
  }
  for (Hypothesis& hypothesis : result.hypotheses) {
    if (reports_logprobs_) {
      hypothesis.logprobs = logprobs_.Of(hypothesis.tokens);
    }
    result.usage.num_generated_tokens += hypothesis.tokens.size();
  }
  return result;
}

}  // namespace espalier
