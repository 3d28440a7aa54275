#include "batcher/scheduler/plan_writer.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace espalier {
namespace {

int NumAsked(std::span<const PlanPromptLogprobs> scorings) {
  int count = 0;
  for (const PlanPromptLogprobs& scoring : scorings) {
    count += static_cast<int>(scoring.tokens.size());
  }
  return count;
}

// Returns the rows of logits for the `num_drafted` drafted tokens of a
// selection. Sampled drafts count in full length, as if none had ended early
// (SampleDrafts::max_tokens).
int NumDraftLogits(const SequenceGroup& group, const PlanSelection& selection,
                   int num_drafted) {
  const int num_logits_per_token = group.num_logits_per_draft_token();
  if (num_logits_per_token == 1) return num_drafted;
  const DrawSelection* const draws = selection.as_draws();
  const int max_tokens = draws == nullptr ? 0 : draws->drafts.max_tokens;
  int num_tokens = 0;
  for (const std::vector<TokenId>& draft : selection.drafts()) {
    if (draft.empty()) continue;
    num_tokens += std::max(static_cast<int>(draft.size()), max_tokens);
  }
  return num_tokens * num_logits_per_token;
}

// Returns the number of source positions that the plan stores, of the sources
// from `first_source` on.
int64_t NumStored(const StepPlan& plan, size_t first_source) {
  int64_t count = 0;
  for (const PlanSource& source :
       std::span(plan.sources).subspan(first_source)) {
    count += source.input->length() - source.num_stored;
  }
  return count;
}

// Returns the number of pages that the rows would have without sharing.
int64_t NumUnsharedPages(const StepPlan& plan) {
  int64_t count = std::ssize(plan.page_indices);
  for (const PlanSource& source : plan.sources) {
    count += source.num_rows * std::ssize(*source.pages);
  }
  return count;
}

}  // namespace

void StepBudget::TakeDrafts(int num_drafted, int num_draft_logits,
                            int64_t num_pages) {
  num_logits -= num_draft_logits - num_drafted;
  drafts.num_tokens -= num_drafted;
  drafts.num_logits -= num_draft_logits;
  drafts.num_pages -= num_pages;
}

void StepBudget::TakeRequested(std::span<const DraftSequence> requested,
                               int num_logits_per_token, int64_t num_pages) {
  drafts.num_pages -= num_pages;
  for (const DraftSequence& sequence : requested) {
    drafts.num_tokens -= sequence.num_tokens;
    drafts.num_logits -= sequence.num_tokens * num_logits_per_token;
  }
}

PlanWriter::PlanWriter(const ModelDescription& model, int max_step_tokens,
                       const PagePool* pool, RunningGroups* groups,
                       TimedStats* counts)
    : max_step_tokens_(max_step_tokens),
      max_logits_(model.limits.max_beams),
      max_prefill_rows_(model.limits.max_prefill_rows),
      pool_(pool),
      groups_(groups),
      counts_(counts) {}

void PlanWriter::Begin(StepPlan* plan) {
  if (!groups_->empty()) last_sizes_.Reserve(plan);
  planned_.reserve(groups_->size());
}

void PlanWriter::BeginStep(StepPlan* plan) {
  budget_ = {max_step_tokens_, max_logits_, max_prefill_rows_};
  plan->max_draft_step_tokens = max_step_tokens_;
}

int PlanWriter::NumAskedIn(const SequenceGroup& group, int num_tokens) const {
  return std::min(group.NumAskedAtOnceIn(num_tokens), max_logits_);
}

DraftRoom PlanWriter::RoomOf(const SequenceGroup& group, DraftRoom room) {
  room.num_tokens = std::min(
      room.num_tokens, room.num_logits / group.num_logits_per_draft_token());
  return room;
}

bool PlanWriter::HasRoomFor(const SequenceGroup& group) const {
  if (!group.prefilling()) {
    return group.num_live_beams() <=
           std::min(budget_.num_tokens, budget_.num_logits);
  }
  // A source is fed at once, so a step may exceed max_step_tokens.
  if (budget_.is_used_up()) return false;
  if (NumAskedIn(group, budget_.num_tokens) > budget_.num_logits) return false;
  return budget_.num_prefill_rows > 0 ||
         group.EndsPrompt(budget_.num_tokens, budget_.num_logits);
}

void PlanWriter::PlanGroup(RunningGroup& running, StepPlan* plan) {
  if (running.group->prefilling()) return PlanPrefill(running, plan);
  if (running.group->may_draft()) return PlanDrafting(running, plan);
  PlanDecode({&running, 1}, plan);
}

void PlanWriter::PlanDecode(std::span<RunningGroup> groups, StepPlan* plan) {
  const int num_logits = plan->num_logits;
  const size_t num_continuations = plan->continuations.size();
  bool names_any = false;
  // In place: the loop is a step's path. If it fails, the plan is abandoned.
  const size_t num_planned = planned_.size();
  planned_.resize(num_planned + groups.size());
  RequestId* const planned = planned_.data() + num_planned;
  for (size_t i = 0; i < groups.size(); ++i) {
    RunningGroup& running = groups[i];
    PrefetchAfter(groups, i);
    names_any = names_any || !running.is_known;
    const absl::Status status = running.group->PlanDecode(plan);
    if (!status.ok()) throw PlanError{status};
    planned[i] = running.id;
  }
  if (names_any) groups_->MarkChanged();
  int num_rows = plan->num_logits - num_logits;
  planned_counts_.num_decode_groups += static_cast<int>(groups.size());
  planned_counts_.num_decode_sequences += num_rows;
  for (const GroupContinuation& ahead :
       std::span(plan->continuations).subspan(num_continuations)) {
    num_rows += static_cast<int>(ahead.tail_pages.size());
  }
  budget_.num_tokens -= num_rows;
  budget_.num_logits -= num_rows;
}

// Room was made before, so too few pages are an internal error. It ends the
// running groups rather than the program.
void PlanWriter::PlanRows(RunningGroup& running, StepPlan* plan) {
  SequenceGroup& group = *running.group;
  groups_->MarkChanged();
  const size_t num_tokens = plan->tokens.size();
  const size_t num_sources = plan->sources.size();
  const int num_logits = plan->num_logits;
  const size_t num_scorings = plan->scorings.size();
  const absl::Status status = group.PlanStep(
      std::max(budget_.num_tokens, 1), plan, std::max(budget_.num_logits, 1),
      budget_.num_prefill_rows, RoomOf(group, budget_.drafts));
  if (!status.ok()) throw PlanError{status};
  planned_.push_back(running.id);
  budget_.num_tokens -= static_cast<int>(plan->tokens.size() - num_tokens +
                                         plan->NumSourceTokens(num_sources));
  // A device may compute a row once for each token that it scores.
  const int num_logprob_queries =
      NumAsked(std::span(plan->scorings).subspan(num_scorings));
  budget_.num_logits -=
      std::max(plan->num_logits - num_logits, num_logprob_queries);
}

void PlanWriter::PlanPrefill(RunningGroup& running, StepPlan* plan) {
  const SequenceGroup& group = *running.group;
  const size_t first_row = plan->rows.size();
  const size_t first_token = plan->tokens.size();
  const size_t num_sources = plan->sources.size();
  const size_t num_selections = plan->selections.size();
  const PrefillCounts before = group.prefill_counts();
  int64_t num_pages = 0;
  if (group.only_scores()) {
    num_pages =
        pool_->num_available() - group.NumPagesForStep(max_step_tokens_);
  }
  PlanRows(running, plan);
  if (group.only_scores()) {
    budget_.drafts.num_pages -=
        std::max<int64_t>(num_pages - pool_->num_available(), 0);
  }
  const PrefillCounts& after = group.prefill_counts();
  const int64_t num_fed_again = after.num_fed_again - before.num_fed_again;
  const int64_t num_prompt_tokens = std::ssize(plan->tokens) - first_token +
                                    NumStored(*plan, num_sources) -
                                    num_fed_again;
  planned_counts_.num_prompt_tokens += num_prompt_tokens;
  if (group.pages().source().has_source()) {
    planned_counts_.num_after_sources +=
        num_prompt_tokens - (after.num_source_fed - before.num_source_fed);
  }
  planned_counts_.num_fed_again += num_fed_again;
  if (plan->selections.size() == num_selections) {
    budget_.num_prefill_rows -= static_cast<int>(plan->rows.size() - first_row);
  }
}

void PlanWriter::PlanDrafting(RunningGroup& running, StepPlan* plan) {
  const SequenceGroup& group = *running.group;
  const size_t num_rows = plan->rows.size();
  const size_t first_token = plan->tokens.size();
  const size_t first_drafting = plan->drafting.size();
  const int64_t num_pages_left =
      pool_->num_available() - group.NumPagesForStep(1);
  PlanRows(running, plan);
  const int64_t num_draft_pages = num_pages_left - pool_->num_available();
  if (plan->rows.size() > num_rows) {
    const int num_sequences = group.num_live_beams();
    const int num_drafted =
        static_cast<int>(plan->tokens.size() - first_token) - num_sequences;
    planned_counts_.num_decode_sequences += num_sequences;
    planned_counts_.num_draft_tokens_fed += num_drafted;
    planned_counts_.num_draft_pages += num_draft_pages;
    budget_.TakeDrafts(
        num_drafted,
        NumDraftLogits(group, plan->selections.back(), num_drafted),
        num_draft_pages);
  } else if (plan->drafting.size() > first_drafting) {
    budget_.TakeRequested(std::span(plan->drafting).subspan(first_drafting),
                          group.num_logits_per_draft_token(),
                          group.num_asked_pages());
  }
}

void PlanWriter::Remember(const StepPlan& plan,
                          std::span<const RequestId> saved,
                          PlansInFlight* in_flight) {
  if (!plan.page_copies.empty() || !plan.page_loads.empty()) AddMovers();
  last_sizes_ = PlanSizes::Of(plan);
  const bool runs_now = in_flight->empty();
  PlanInFlight& remembered =
      in_flight->Push(plan, std::exchange(planned_, {}), saved);
  // No allocation from here on.
  const size_t num_decode_groups = planned_counts_.num_decode_groups;
  remembered.only_decodes = num_decode_groups == remembered.requests.size();
  if (runs_now) remembered.planned_alone_ns = counts_->now;
  if (runs_now && num_decode_groups == groups_->size() &&
      plan.continuations.empty()) {
    remembered.num_unshared_pages = NumUnsharedPages(plan);
  }
  const Counts counts = std::exchange(planned_counts_, {});
  remembered.num_prompt_tokens =
      counts.num_prompt_tokens + counts.num_fed_again;
  remembered.num_decode_sequences = counts.num_decode_sequences;
  remembered.num_draft_pages = counts.num_draft_pages;
  SchedulerStats& stats = counts_->stats;
  stats.num_prompt_tokens +=
      counts.num_prompt_tokens - counts.num_after_sources;
  stats.num_tokens_fed_again += counts.num_fed_again;
  stats.num_decode_rows += counts.num_decode_sequences;
  stats.num_draft_tokens_fed += counts.num_draft_tokens_fed;
  stats.num_swapped_pages_out += std::ssize(plan.page_saves);
  stats.num_swapped_pages_in += std::ssize(plan.page_loads);
}

void PlanWriter::Abandon() {
  planned_.clear();
  planned_counts_ = {};
}

void PlanWriter::AddMovers() {
  for (RunningGroup& running : *groups_) {
    SequenceGroup& group = *running.group;
    if (!group.pages().has_moves()) continue;
    const auto planned =
        std::find(planned_.begin(), planned_.end(), running.id);
    if (planned != planned_.end()) continue;
    planned_.push_back(running.id);
    group.OnMovesAlone();
  }
}

}  // namespace espalier
