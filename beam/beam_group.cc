#include "beam/beam_group.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "beam/make_strategy.h"
#include "beam/selection_options.h"
#include "beam/validate_result.h"

namespace espalier {
namespace {

// So that one more can be added without failure.
template <typename T>
void ReserveOneMore(std::vector<T>* values) {
  if (values->size() == values->capacity()) {
    values->reserve(std::max<size_t>(1, 2 * values->capacity()));
  }
}

absl::Status CheckDrafted(std::span<const TokenId> tokens, int vocab_size) {
  for (const TokenId token : tokens) {
    if (token >= 0 && token < vocab_size) continue;
    return Internal("a step drafted token ", token, " of ", vocab_size);
  }
  return absl::OkStatus();
}

}  // namespace

BeamGroup::BeamGroup(RequestId id, PreparedRequest prepared, PagePool* pool,
                     SequenceIdSource* ids, PrefixTree* tree, TraceSink* trace)
    : id_(id),
      request_(std::move(prepared.request)),
      rule_(std::move(prepared.rule)),
      finishing_token_ids_(FinishingTokenIds(request_.params)),
      pages_(NumSlots(request_.params),
             GroupPages::WorstCase(request_, pool->page_size()), pool, ids),
      prefill_(&request_, &pages_, tree),
      keeps_pages_(tree != nullptr && request_.params.prefix_cache),
      strategy_(MakeStrategy(request_.params, std::move(prepared.allowed),
                             std::move(prepared.text))),
      drafts_(request_.params, strategy_->supports_drafts(),
              std::move(prepared.drafter)) {
  if (trace != nullptr) {
    tracer_ = std::make_unique<GroupTracer>(id_, request_, trace);
  }
}

int64_t BeamGroup::num_pending_tokens() const {
  if (done_ || is_away()) return 0;
  return prefilling() ? prefill_.num_pending_tokens() : num_live_beams();
}

bool BeamGroup::prefilling() const {
  return !done_ && !is_away() && !prefill_.done();
}

void BeamGroup::MatchPrefix(int64_t num_promised, StepPlan* plan) {
  const int64_t num_scored = std::ssize(prompt_logprobs_);
  if (tracer_ == nullptr) return prefill_.Match(num_scored, num_promised, plan);
  const std::vector<HeldPages> before = pages_.PagesBySlot();
  const size_t num_copies = plan->page_copies.size();
  prefill_.Match(num_scored, num_promised, plan);
  tracer_->RecordMatch(before, pages_.PagesBySlot(),
                       std::span(plan->page_copies).subspan(num_copies));
}

int64_t BeamGroup::NumPagesForStep(int max_tokens) const {
  if (prefilling()) return prefill_.NumPagesToFeed(max_tokens);
  if (outstanding()) return pages_.NumPagesToReserveTails();
  return pages_.NumPagesToAppend(OneEach());
}

int64_t BeamGroup::NumPagesSoon() const {
  if (done_ || is_away()) return 0;
  if (!prefilling() && num_steps_ > 0) return num_live_beams();
  return prefill_.NumPagesToFeedAll() + NumSlots(request_.params);
}

bool BeamGroup::can_plan() const {
  if (done_ || is_away() || num_unanswered_ > 1) return false;
  if (drafts_.is_waiting()) return false;
  if (num_unanswered_ == 0) return true;
  if (drafts_.is_on() || !drafted_.empty() || replay_ != nullptr) return false;
  if (!have_one_length_) return false;
  // The step ahead generates the token after the one that is outstanding.
  return LengthOf(0) + 2 <= *request_.params.max_new_tokens &&
         strategy_->supports_async_scheduling();
}

absl::Status BeamGroup::PlanStep(int max_tokens, StepPlan* plan, int max_logits,
                                 int max_prefill_rows,
                                 const DraftRoom& draft_room) {
  CHECK(can_plan()) << "request " << id_ << " is done or has to wait";
  CHECK_GE(max_tokens, 1) << "tokens to feed";
  CHECK_GE(max_logits, 1) << "rows of logits";
  prefill_.OnPlan();
  const size_t num_copies = plan->page_copies.size();
  const absl::Status status =
      PlanRows(max_tokens, plan, max_logits, max_prefill_rows, draft_room);
  if (tracer_ != nullptr && status.ok()) {
    tracer_->RecordCopies(std::span(plan->page_copies).subspan(num_copies));
  }
  return status;
}

absl::Status BeamGroup::PlanRows(int max_tokens, StepPlan* plan, int max_logits,
                                 int max_prefill_rows,
                                 const DraftRoom& draft_room) {
  if (prefilling()) {
    const int max_rows =
        EndsPrompt(max_tokens, max_logits) ? 1 : max_prefill_rows;
    CHECK_GE(max_rows, 1) << "rows of a prefill";
    return PlanPrefill(max_tokens, max_logits, max_rows, plan);
  }
  return outstanding() ? PlanNextAsync(plan) : PlanBeams(draft_room, plan);
}

bool BeamGroup::EndsPrompt(int max_tokens, int max_logits) const {
  if (!prefilling() || !prefill_.feeds_prompt()) return false;
  const int64_t num_pending = prefill_.num_pending_tokens();
  return num_pending <= max_tokens &&
         (!request_.params.prompt_logprobs || num_pending <= max_logits);
}

absl::Status BeamGroup::PlanPrefill(int max_tokens, int max_logits,
                                    int max_rows, StepPlan* plan) {
  const bool is_prompt = prefill_.feeds_prompt();
  const bool is_scored = is_prompt && request_.params.prompt_logprobs;
  if (is_scored) max_tokens = std::min(max_tokens, max_logits);
  const int first_logits = plan->num_logits;
  const auto add_row = [&](int rank, const TokenPath& tokens) {
    const Sequence& sequence = pages_.sequence(rank);
    const bool is_last =
        is_prompt && sequence.num_tokens() == request_.prompt_tokens.size();
    const int num_tokens = static_cast<int>(tokens.size());
    const int first = sequence.num_tokens() - num_tokens;
    AddRow(sequence, tokens,
           is_scored ? num_tokens - NumScored(first, num_tokens)
                     : (is_last ? 1 : 0),
           plan);
  };
  was_planned_ = true;
  RETURN_IF_ERROR(prefill_.Feed(max_tokens, max_rows, plan, add_row));
  const int num_logits_rows = plan->num_logits - first_logits;
  if (is_scored) AddScoring(first_logits, num_logits_rows, plan);
  if (is_prompt && prefill_.done()) {
    AddSelection(first_logits + num_logits_rows - 1, {}, plan);
  }
  return absl::OkStatus();
}

// What is fed again may be scored already.
int BeamGroup::NumScored(int first, int num_tokens) const {
  const int64_t num_scored = std::ssize(prompt_logprobs_) - first;
  return static_cast<int>(std::clamp<int64_t>(num_scored, 0, num_tokens));
}

// The last token of a prompt has no next one.
void BeamGroup::AddScoring(int first_logits, int num_logits_rows,
                           StepPlan* plan) const {
  const std::span<const TokenId> prompt = request_.prompt_tokens;
  const int first = pages_.sequence(0).num_tokens() - num_logits_rows + 1;
  const int end = std::min<int>(first + num_logits_rows, std::ssize(prompt));
  if (first == end) return;
  plan->scorings.push_back(
      {.request = id_,
       .first_logits = first_logits,
       .tokens = {prompt.begin() + first, prompt.begin() + end},
       .num_logprobs = SaturateToInt(*request_.params.prompt_logprobs)});
}

absl::Status BeamGroup::TakeScoring(const PromptLogprobsResult& result,
                                    size_t num_tokens, int vocab_size) {
  const std::vector<TokenLogProb>& logprobs = result.logprobs;
  const auto scored = std::span(request_.prompt_tokens)
                          .subspan(1 + prompt_logprobs_.size(), num_tokens);
  const int num_best = SaturateToInt(*request_.params.prompt_logprobs);
  RETURN_IF_ERROR(CheckLogProbs(logprobs, scored, num_best, vocab_size));
  prompt_logprobs_.insert(prompt_logprobs_.end(), logprobs.begin(),
                          logprobs.end());
  return absl::OkStatus();
}

bool BeamGroup::HasToAskForDrafts(const DraftRoom& room) const {
  if (!drafts_.has_to_ask() || !room.may_ask || room.num_tokens < 1) {
    return false;
  }
  if (is_beam_search() && room.num_tokens < num_live_beams()) return false;
  for (int rank = 0; rank < num_live_beams(); ++rank) {
    if (strategy_->max_draft_tokens(rank) > 0) return true;
  }
  return false;
}

void BeamGroup::AskForDrafts(const DraftRoom& room, StepPlan* plan) {
  if (prompt_ == nullptr) {
    prompt_ =
        std::make_shared<const std::vector<TokenId>>(request_.prompt_tokens);
  }
  PlanSelection selection;  // which samples these are
  strategy_->DescribeSelection(&selection);
  std::shared_ptr<const DraftedSearch> search;
  int max_tokens = drafts_.num_tokens();  // of each
  if (is_beam_search()) {
    search = std::make_shared<const DraftedSearch>(
        DraftedSearch{.num_beams = pages_.num_slots(),
                      .num_candidates = selection.num_candidates,
                      .eos_token_ids = finishing_token_ids_});
    max_tokens = std::min(max_tokens, room.num_tokens / num_live_beams());
  }
  std::vector<int> ranks;
  int num_left = room.num_tokens;
  for (int rank = 0; rank < num_live_beams(); ++rank) {
    const int count =
        std::min({max_tokens, num_left, strategy_->max_draft_tokens(rank)});
    if (count <= 0) continue;
    DraftSequence sequence = {
        .request = id_,
        .sample = is_beam_search() ? rank : selection.samples[rank],
        .prompt = prompt_,
        .num_tokens = count,
        .rule = rule_,
        .cum_log_prob = selection.cum_log_probs[rank],
        .search = search};
    strategy_->AppendTokens(rank, &sequence.generated);
    plan->drafting.push_back(std::move(sequence));
    ranks.push_back(rank);
    num_left -= count;
  }
  was_planned_ = true;
  drafts_.OnAsk(std::move(ranks));
}

absl::Status BeamGroup::TakeDrafts(std::span<DraftedTokens> drafts,
                                   int vocab_size) {
  for (const DraftedTokens& draft : drafts) {
    const size_t num_logits =
        drafts_.are_drawn() ? draft.tokens.size() * vocab_size : 0;
    if (!draft.logits.empty() && draft.logits.size() != num_logits) {
      return Internal("a step drafted ", draft.tokens.size(), " tokens with ",
                      draft.logits.size(), " logits");
    }
    RETURN_IF_ERROR(CheckDrafted(draft.tokens, vocab_size));
    for (const DraftPath& path : draft.paths) {
      RETURN_IF_ERROR(CheckDrafted(path.tokens, vocab_size));
    }
  }
  drafts_.Take(drafts);
  return absl::OkStatus();
}

absl::Status BeamGroup::PlanBeams(const DraftRoom& draft_room, StepPlan* plan) {
  if (HasToAskForDrafts(draft_room)) {
    AskForDrafts(draft_room, plan);
    return absl::OkStatus();
  }
  if (DraftRows paths = DraftPaths(draft_room); !paths.empty()) {
    return PlanPaths(std::move(paths), plan);
  }
  std::vector<std::vector<TokenId>> drafts = Draft(draft_room);
  std::span<const int> num_tokens = OneEach();
  std::vector<int> with_drafts;
  for (const std::vector<TokenId>& draft : drafts) {
    with_drafts.push_back(1 + static_cast<int>(draft.size()));
  }
  if (!drafts.empty()) num_tokens = with_drafts;
  RETURN_IF_ERROR(pages_.Append(num_tokens, &plan->page_copies));
  was_planned_ = true;
  const int first_logits = plan->num_logits;
  for (int rank = 0; rank < num_live_beams(); ++rank) {
    TokenPath tokens = {std::span(&last_tokens_[rank], 1)};
    if (!drafts.empty()) tokens.rest = drafts[rank];
    AddRow(pages_.sequence(rank), tokens, num_tokens[rank], plan);
  }
  AddSelection(first_logits, std::move(drafts), plan);
  drafts_.OnPlan();
  return absl::OkStatus();
}

DraftRows BeamGroup::DraftPaths(const DraftRoom& room) const {
  if (!drafts_.is_on() || room.num_tokens < 1 || !is_beam_search()) return {};
  const int num_beams = num_live_beams();
  const int64_t num_pages = room.num_pages + pages_.NumPagesToAppend(OneEach());
  return ChooseDraftRows(
      CutAtEnds(drafts_.DraftPaths(num_beams, strategy_->max_draft_tokens(0)),
                finishing_token_ids_),
      num_beams, [&](const DraftRows& rows) {
        return rows.num_drafted(num_beams) <= room.num_tokens &&
               pages_.NumPagesToAppendRows(rows.ranks, rows.num_tokens()) <=
                   num_pages;
      });
}

absl::Status BeamGroup::PlanPaths(DraftRows drafts, StepPlan* plan) {
  const std::vector<int> num_tokens = drafts.num_tokens();
  RETURN_IF_ERROR(pages_.AppendRows(drafts.ranks, num_tokens, plan));
  was_planned_ = true;
  const int first_logits = plan->num_logits;
  for (size_t row = 0; row < drafts.ranks.size(); ++row) {
    AddRow(pages_.row(static_cast<int>(row)),
           {std::span(&last_tokens_[drafts.ranks[row]], 1), drafts.drafts[row]},
           num_tokens[row], plan);
  }
  replay_ = std::make_unique<DraftReplay>(num_live_beams(), std::move(drafts));
  AddSelection(first_logits, {}, plan);
  drafts_.OnPlan();
  return absl::OkStatus();
}

std::vector<std::vector<TokenId>> BeamGroup::Draft(
    const DraftRoom& room) const {
  if (!drafts_.is_on() || room.num_tokens < 1 || is_beam_search()) return {};
  std::vector<int> max_tokens;
  for (int rank = 0; rank < num_live_beams(); ++rank) {
    max_tokens.push_back(strategy_->max_draft_tokens(rank));
  }
  std::vector<std::vector<TokenId>> drafts = strategy_->CutDrafts(
      drafts_.Draft(max_tokens, room.num_tokens), drafts_.are_drawn());
  std::vector<int> num_tokens(num_live_beams(), 1);
  const int64_t num_pages = pages_.NumPagesToAppend(num_tokens);
  int num_drafted = 0;
  for (size_t rank = 0; rank < drafts.size(); ++rank) {
    // Whether drafts are verified must not depend on what was drawn.
    num_tokens[rank] += drafts_.are_drawn()
                            ? std::min(drafts_.num_tokens(), max_tokens[rank])
                            : static_cast<int>(drafts[rank].size());
    num_drafted += static_cast<int>(drafts[rank].size());
  }
  const bool fits =
      pages_.NumPagesToAppend(num_tokens) <= num_pages + room.num_pages;
  if (num_drafted == 0 || !fits) return {};
  return drafts;
}

absl::Status BeamGroup::PlanNextAsync(StepPlan* plan) {
  PlanSelection selection;  // of the step that is outstanding
  strategy_->DescribeSelection(&selection);
  GroupContinuation continuation = {
      .request = id_,
      .position = PositionAhead(),
      .num_candidates = selection.num_candidates,
      .num_generated = selection.num_generated + 1,
      .rule = rule_};
  ASSIGN_OR_RETURN(continuation.tail_pages, pages_.ReserveTails());
  plan->continuations.push_back(std::move(continuation));
  ++num_unanswered_;
  return absl::OkStatus();
}

int BeamGroup::PositionAhead() const {
  const int position = pages_.sequence(0).num_tokens();
  for (int rank = 1; rank < num_live_beams(); ++rank) {
    CHECK_EQ(pages_.sequence(rank).num_tokens(), position)
        << "length of beam " << rank << " of request " << id_;
  }
  return position;
}

void BeamGroup::AddRow(const Sequence& sequence, const TokenPath& tokens,
                       int num_logits, StepPlan* plan) const {
  const int num_tokens = static_cast<int>(tokens.size());
  plan->rows.push_back({
      .sequence = sequence.id,
      .first_token = static_cast<int>(plan->tokens.size()),
      .num_tokens = num_tokens,
      .first_position = sequence.num_tokens() - num_tokens,
      .num_logits = num_logits,
      .first_logits = plan->num_logits,
  });
  plan->tokens.insert(plan->tokens.end(), tokens.head.begin(),
                      tokens.head.end());
  plan->tokens.insert(plan->tokens.end(), tokens.rest.begin(),
                      tokens.rest.end());
  plan->num_logits += num_logits;
  for (const PageRef& page : sequence.pages.pages()) {
    plan->page_indices.push_back(page.id());
  }
  plan->page_indptr.push_back(static_cast<int>(plan->page_indices.size()));
}

void BeamGroup::AddSelection(int first_logits,
                             std::vector<std::vector<TokenId>> drafts,
                             StepPlan* plan) {
  PlanSelection selection;
  selection.request = id_;
  selection.first_logits = first_logits;
  selection.rule = rule_;
  strategy_->DescribeSelection(&selection);
  if (!drafts.empty()) {
    drafted_ = drafts;
    selection.draft_logits = drafts_.Logits(drafts);
    strategy_->DescribeDrafts(std::move(drafts), &selection);
  }
  if (replay_ != nullptr) {
    selection.ranks = replay_->drafts().ranks;
    selection.drafts = replay_->drafts().drafts;
  }
  selection.num_slots = NumSlots(request_.params);
  selection.eos_token_ids = finishing_token_ids_;
  selection.slots = pages_.slots();
  if (rule_->processors.needs_history()) {
    selection.histories.resize(num_live_beams());
    for (int rank = 0; rank < num_live_beams(); ++rank) {
      strategy_->AppendTokens(rank, &selection.histories[rank]);
    }
  }
  plan->selections.push_back(std::move(selection));
  ++num_unanswered_;
}

absl::Status BeamGroup::ValidateResult(const SelectionResult& result,
                                       int vocab_size) const {
  PlanSelection asked;
  asked.rule = rule_;
  strategy_->DescribeSelection(&asked);
  if (!drafted_.empty()) strategy_->DescribeDrafts(drafted_, &asked);
  if (replay_ != nullptr) {
    asked.ranks = replay_->drafts().ranks;
    asked.drafts = replay_->drafts().drafts;
    asked.num_slots = NumSlots(request_.params);
    asked.eos_token_ids = finishing_token_ids_;
  }
  return espalier::ValidateResult(asked, result, vocab_size);
}

absl::Status BeamGroup::Advance(const SelectionResult& result,
                                StepPlan* next_plan, SearchWatcher* watcher) {
  CHECK(!done_) << "request " << id_ << " is done";
  CHECK_GE(num_unanswered_, 1) << "request " << id_ << " asked for nothing";
  --num_unanswered_;
  ++num_steps_;
  const auto advance = [&](const SelectionResult& step, bool is_last) {
    const absl::Status status = AdvanceStep(step, is_last, next_plan);
    if (status.ok() && watcher != nullptr) watcher->OnStep(*strategy_);
    return status;
  };
  RETURN_IF_ERROR(advance(result, result.further.empty()));
  for (size_t i = 0; i < result.further.size() && !done_; ++i) {
    RETURN_IF_ERROR(advance(result.further[i], i + 1 == result.further.size()));
  }
  return absl::OkStatus();
}

absl::Status BeamGroup::AdvanceStep(const SelectionResult& result, bool is_last,
                                    StepPlan* next_plan) {
  if (tracer_ != nullptr) return DecideAndTell(result, is_last, next_plan);
  std::vector<Decision> decisions;
  std::vector<Continuation> beams;
  return Decide(result, is_last, reports_logprobs() ? &decisions : nullptr,
                &beams, next_plan);
}

absl::Status BeamGroup::Decide(const SelectionResult& result, bool is_last,
                               std::vector<Decision>* decisions,
                               std::vector<Continuation>* beams,
                               StepPlan* next_plan) {
  const std::span<const TokenTree::Node> nodes = NodesToKeep();
  absl::StatusOr<std::vector<Continuation>> live =
      strategy_->Advance(result, decisions);
  if (reports_logprobs()) logprobs_.Take(result, *decisions);
  if (live.ok()) KeepEnded(nodes, *live);
  if (live.ok()) ApplyDrafts(result, *live, is_last);
  if (strategy_->done()) {
    Drop(next_plan);
    return ExplainNoToken(live.status(), request_.params);
  }
  *beams = *std::move(live);
  Apply(*beams, is_last, next_plan);
  return absl::OkStatus();
}

absl::Status BeamGroup::DecideAndTell(const SelectionResult& result,
                                      bool is_last, StepPlan* next_plan) {
  tracer_->RecordPages(pages_.PagesBySlot(), pages_.pool(), prefill_.counts());
  const std::vector<int> parents = pages_.slots();
  std::vector<Decision> decisions;
  std::vector<Continuation> beams;
  const absl::Status status =
      Decide(result, is_last, &decisions, &beams, next_plan);
  tracer_->RecordStep(result, decisions, parents, beams, pages_.slots());
  return status;
}

void BeamGroup::Apply(std::span<const Continuation> beams, bool is_last,
                      StepPlan* next_plan) {
  ApplyToPages(beams, is_last, next_plan);
  std::vector<TokenId> tokens;
  for (const Continuation& beam : beams) tokens.push_back(beam.token);
  last_tokens_ = std::move(tokens);
  if (is_last) replay_ = nullptr;
}

void BeamGroup::ApplyToPages(std::span<const Continuation> beams, bool is_last,
                             StepPlan* next_plan) {
  if (!is_last) return pages_.FollowRows(replay_->rows());
  if (replay_ != nullptr) {
    const size_t num_prompt = request_.prompt_tokens.size();
    pages_.MergeRows(static_cast<int>(num_prompt) + LengthOf(0) - 1, next_plan);
  }
  std::vector<int> parent_ranks;
  for (const Continuation& beam : beams) {
    parent_ranks.push_back(beam.parent_rank);
  }
  pages_.Reorder(parent_ranks, next_plan);
}

void BeamGroup::ApplyDrafts(const SelectionResult& result,
                            std::span<const Continuation> beams, bool is_last) {
  if (!drafts_.can_draft()) return;
  if (is_beam_search()) return ApplyPaths(beams, is_last);
  const std::vector<std::vector<TokenId>> drafted = std::exchange(drafted_, {});
  std::vector<int> accepted;
  for (size_t rank = 0; rank < drafted.size(); ++rank) {
    accepted.push_back(result.num_tokens[rank] - 1);
  }
  drafts_.Record(drafted, accepted);
  // The step of a prompt can have no drafts.
  const bool might_draft = num_steps_ > 1;
  if (drafted.empty() && might_draft) drafts_.RecordUndrafted(num_live_beams());
  if (strategy_->done()) return;
  have_one_length_ = true;
  std::vector<int> parents;
  std::vector<std::vector<TokenId>> tokens;
  for (size_t rank = 0; rank < beams.size(); ++rank) {
    const auto& [parent, token, num_tokens] = beams[rank];
    parents.push_back(parent);
    tokens.push_back(LastTokens(static_cast<int>(rank), num_tokens));
    if (!drafted.empty() && !is_away()) {
      const int num_rejected =
          static_cast<int>(drafted[parent].size()) - accepted[parent];
      pages_.Truncate(parent,
                      pages_.sequence(parent).num_tokens() - num_rejected);
    }
    have_one_length_ =
        have_one_length_ && LengthOf(static_cast<int>(rank)) == LengthOf(0);
  }
  drafts_.Advance(parents, tokens);
}

void BeamGroup::ApplyPaths(std::span<const Continuation> beams, bool is_last) {
  const bool ends = strategy_->done();
  if (!is_last && !ends) replay_->Follow(beams);
  if (is_last || ends) drafts_.RecordPaths(replay_.get());
  if (ends) return;
  std::vector<int> parents;
  std::vector<std::vector<TokenId>> tokens;
  for (const Continuation& beam : beams) {
    parents.push_back(beam.parent_rank);
    tokens.push_back({beam.token});
  }
  drafts_.Advance(parents, tokens);
}

int BeamGroup::LengthOf(int rank) const {
  return strategy_->tree().depth(strategy_->node(rank));
}

std::vector<TokenId> BeamGroup::LastTokens(int rank, int num_tokens) const {
  std::vector<TokenId> tokens(num_tokens);
  TokenTree::Node node = strategy_->node(rank);
  for (auto token = tokens.rbegin(); token != tokens.rend(); ++token) {
    *token = strategy_->tree().token(node);
    node = strategy_->tree().parent(node);
  }
  return tokens;
}

std::span<const int> BeamGroup::OneEach() const {
  one_each_.resize(num_live_beams(), 1);
  return one_each_;
}

std::span<const TokenTree::Node> BeamGroup::NodesToKeep() {
  nodes_to_keep_.clear();
  if (!keeps_pages_ || is_away() || !prefill_.is_filled()) return {};
  // Before the first answer there is one sequence, however many begin there.
  if (num_steps_ == 1) {
    nodes_to_keep_.push_back(TokenTree::kRoot);
    return nodes_to_keep_;
  }
  for (int rank = 0; rank < num_live_beams(); ++rank) {
    nodes_to_keep_.push_back(strategy_->node(rank));
  }
  return nodes_to_keep_;
}

// Beams are pruned at every step, and most of what they held lives on in
// others. A sample that ends is a result.
void BeamGroup::KeepEnded(std::span<const TokenTree::Node> nodes,
                          std::span<const Continuation> beams) {
  if (nodes.empty()) return;
  if (IsBeamSearch(request_.params) && !strategy_->done()) return;
  // Each sample goes on as itself, so none has ended.
  if (!strategy_->done() && beams.size() >= nodes.size()) return;
  std::vector<bool> goes_on(nodes.size());
  for (const Continuation& beam : beams) goes_on[beam.parent_rank] = true;
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    if (goes_on[rank]) continue;
    Keep(static_cast<int>(rank), nodes[rank],
         strategy_->tree().depth(nodes[rank]));
  }
}

// What has no memory is not kept, and nothing else comes of it.
void BeamGroup::Keep(int rank, TokenTree::Node node, int num_generated) try {
  const std::vector<TokenId> generated = strategy_->tree().Path(node);
  const int num_prompt = static_cast<int>(request_.prompt_tokens.size());
  prefill_.Keep(pages_.sequence(rank).pages,
                {request_.prompt_tokens, generated},
                num_prompt + num_generated);
} catch (const std::bad_alloc&) {
}

void BeamGroup::KeepLive() {
  if (!keeps_pages_ || num_steps_ == 0 || !prefill_.done() ||
      !prefill_.is_filled()) {
    return;
  }
  for (int rank = 0; rank < num_live_beams(); ++rank) {
    const TokenTree::Node node = strategy_->node(rank);
    // The last token is not fed, or its step is not answered.
    Keep(rank, node, strategy_->tree().depth(node) - 1);
  }
}

void BeamGroup::PutAway(const PageSaving& saving, bool names_end,
                        StepPlan* plan) {
  CHECK(!done_ && !is_away()) << "request " << id_ << " holds nothing";
  KeepLive();
  if (tracer_ != nullptr) {
    tracer_->RecordPreemption(pages_.PagesBySlot(), pages_.slots(),
                              prefill_.counts());
  }
  if (names_end) ReserveOneMore(&plan->ended);
  // Its sequences begin as one stem.
  is_saving_ = pages_.PutAway(
      num_beams(), pages_.has_rows() ? PageSaving{} : saving, names_end, plan);
  if (names_end) plan->ended.push_back(id_);
  prefill_.Stop();
  was_planned_ = false;
}

void BeamGroup::DropSaved() {
  is_saving_ = false;
  pages_.DropSaved();
}

void BeamGroup::Resume() {
  CHECK(is_away() && !has_plan_in_flight()) << "request " << id_;
  std::vector<std::vector<TokenId>> branches;
  if (num_steps_ > 0) {
    for (int rank = 0; rank < num_live_beams(); ++rank) {
      branches.emplace_back();
      strategy_->AppendTokens(rank, &branches.back());
      branches.back().pop_back();  // not fed yet
    }
  }
  pages_.Restart();
  prefill_.Restart(std::move(branches));
}

int64_t BeamGroup::NumPagesToResume() const {
  const int page_size = pages_.pool().page_size();
  const int64_t num_prompt = std::ssize(request_.prompt_tokens);
  int64_t num_pages = num_prompt / page_size;
  for (int rank = 0; rank < num_live_beams(); ++rank) {
    const int64_t num_generated =
        num_steps_ == 0 ? 0 : strategy_->tree().depth(strategy_->node(rank));
    num_pages += NumPages(num_prompt + num_generated, page_size) -
                 num_prompt / page_size;
  }
  return std::min(num_pages, pages_.max_pages());
}

void BeamGroup::FinishEarly(FinishReason reason, StepPlan* next_plan) {
  CHECK(!done_ && has_output()) << "request " << id_ << " has no output";
  if (!is_away()) KeepLive();
  strategy_->FinishLive(reason);
  Drop(next_plan);
}

void BeamGroup::Drop(StepPlan* next_plan) {
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
  last_tokens_.clear();
  done_ = true;
}

void BeamGroup::RecordEnd(const absl::StatusOr<Result>& result) {
  CHECK(done_) << "request " << id_ << " is not done";
  if (tracer_ != nullptr) tracer_->RecordEnd(result);
}

Result BeamGroup::TakeResult() const {
  CHECK(done_) << "request " << id_ << " is not done";
  Result result;
  result.hypotheses = strategy_->Hypotheses();
  result.threshold = strategy_->threshold();
  result.usage.num_prompt_tokens = request_.prompt_tokens.size();
  result.usage.num_cached_tokens = prefill_.counts().num_cached;
  result.usage.num_steps = num_steps_;
  result.usage.num_drafted_tokens = drafts_.num_drafted();
  result.usage.num_accepted_tokens = drafts_.num_accepted();
  if (DrawsAtRandom(request_.params)) result.seed = request_.params.seed;
  if (request_.params.prompt_logprobs) {
    result.prompt_logprobs = prompt_logprobs_;
  }
  for (Hypothesis& hypothesis : result.hypotheses) {
    if (reports_logprobs()) {
      hypothesis.logprobs = logprobs_.Of(hypothesis.tokens);
    }
    result.usage.num_generated_tokens += hypothesis.tokens.size();
  }
  return result;
}

}  // namespace espalier
