#include "batcher/scheduler/result_applier.h"

#include <new>
#include <utility>

#include "base/memory.h"

namespace espalier {

ResultApplier::ResultApplier(const ModelDescription& model,
                             bool async_scheduling, RunningGroups* groups,
                             TimedStats* counts)
    : async_scheduling_(async_scheduling),
      vocab_size_(model.vocab_size),
      groups_(groups),
      counts_(counts) {}

void ResultApplier::Apply(const PlanInFlight& plan, StepResult* result) {
  SchedulerStats& stats = counts_->stats;
  stats.forward_time += result->forward_time;
  stats.select_time += result->select_time;
  stats.draft_time += result->draft_time;
  RecordCosts(plan, *result);
  if (!result->draft_status.ok()) {
    ++stats.num_draft_failures;
    stats.last_draft_failure = std::move(result->draft_status);
  }
  for (const RequestId request : plan.requests) {
    if (plan.only_decodes) break;  // below
    RunningGroup* running = groups_->Find(request);
    if (running != nullptr) running->group->OnAnswer();
  }
  for (size_t i = 0; i < plan.scored.size(); ++i) {
    TakeScoring(std::move(result->scorings[i]), plan.scored[i].second);
  }
  if (!plan.only_decodes) FinishScored(plan);
  TakeDrafts(plan, result->drafts);
  ApplySelections(result->selections, plan.only_decodes);
}

void ResultApplier::Fail(const PlanInFlight& plan, const absl::Status& why) {
  for (const RequestId request : plan.requests) {
    RunningGroup* running = groups_->Find(request);
    if (running != nullptr) groups_->Finish(*running, why);
  }
}

void ResultApplier::RecordCosts(const PlanInFlight& plan,
                                const StepResult& result) {
  const bool has_counted =
      plan.num_decode_only_tokens > 0 && result.num_logits > 0;
  costs_.RecordStep(
      has_counted ? result.num_logits : plan.num_decode_only_tokens,
      result.forward_time);
  costs_.RecordDrafts(result.num_draft_rows, result.draft_time);
  if (plan.num_decode_only_tokens > 0 && plan.planned_alone_ns >= 0 &&
      !plan.drafts) {
    costs_.RecordWait(absl::Nanoseconds(counts_->now - plan.planned_alone_ns) -
                      result.forward_time - result.select_time);
  }
  if (plan.num_decode_only_tokens > 0 && plan.num_decode_sequences > 0) {
    num_decode_sequences_ = static_cast<int>(plan.num_decode_sequences);
  }
}

void ResultApplier::TakeScoring(PromptLogprobsResult&& result,
                                size_t num_tokens) {
  RunningGroup* running = groups_->Find(result.request);
  if (running == nullptr) return;
  absl::Status status = groups_->out_of_memory();
  IfThereIsMemory([&] {
    status =
        running->group->TakeScoring(std::move(result), num_tokens, vocab_size_);
  });
  if (!status.ok()) groups_->Finish(*running, status);
}

void ResultApplier::FinishScored(const PlanInFlight& plan) {
  for (const RequestId request : plan.requests) {
    RunningGroup* running = groups_->Find(request);
    if (running == nullptr || !running->group->has_scored_all()) continue;
    absl::StatusOr<Result> result = groups_->out_of_memory();
    IfThereIsMemory([&] {
      running->group->Drop(groups_->EndsOf(*running));
      result = running->group->TakeResult();
    });
    groups_->Finish(*running, std::move(result));
  }
}

void ResultApplier::TakeDrafts(const PlanInFlight& plan,
                               std::span<DraftedTokens> drafts) {
  for (const auto& [request, count] : plan.drafted) {
    const std::span<DraftedTokens> own = drafts.first(count);
    drafts = drafts.subspan(count);
    RunningGroup* running = groups_->Find(request);
    if (running == nullptr) continue;
    absl::Status status = groups_->out_of_memory();
    IfThereIsMemory(
        [&] { status = running->group->TakeDrafts(own, vocab_size_); });
    if (!status.ok()) groups_->Finish(*running, status);
  }
}

void ResultApplier::ApplySelections(std::span<const SelectionResult> results,
                                    bool answers_plan) {
  RunningGroups& groups = *groups_;  // in registers: the loop is a step's path
  TimedStats& counts = *counts_;
  const int vocab_size = vocab_size_;
  for (const SelectionResult& result : results) {
    // It may have been cancelled, or may have ended a step before.
    RunningGroup* const running = groups.Find(result.request);
    if (running == nullptr) continue;
    SequenceGroup& group = *running->group;
    if (answers_plan) group.OnAnswer();
    try {
      const absl::Status status =
          !result.error.ok() && !group.ignores_result() ? result.error
          : group.speculates()
              ? ApplyDrafting(*running, result)
              : group.ApplyResult(result, vocab_size, groups.next_plan(),
                                  running->watcher.get());
      if (!status.ok()) {
        groups.Finish(*running, status);
        continue;
      }
      if (!group.repeats_step()) {
        running->times.OnToken(counts.now, &counts.stats);
      }
      if (group.done()) {
        groups.Finish(*running, group.TakeResult());
      } else {
        if (group.is_constrained()) AwaitLists(&group);
        groups.AddDemand(group);
      }
    } catch (const std::bad_alloc&) {
      groups.Finish(*running, groups.out_of_memory());
    }
  }
}

void ResultApplier::AwaitLists(SequenceGroup* group) {
  if (make_lists_ == nullptr || group->outstanding()) return;
  if (std::optional<ListWork> work = group->AwaitLists()) {
    ++counts_->stats.num_list_waits;
    make_lists_(*std::move(work));
  }
}

absl::Status ResultApplier::ApplyDrafting(RunningGroup& running,
                                          const SelectionResult& result) {
  SequenceGroup& group = *running.group;
  auto cost = costs_.At(num_decode_sequences_, group.drafts_by_model());
  if (cost.has_value()) {
    cost->wait *= async_scheduling_ ? group.NumWaitsToDraft() : 0;
    group.SetDraftCost(*cost);
  }
  const int64_t num_drafted = group.num_drafted_tokens();
  const int64_t num_accepted = group.num_accepted_tokens();
  const absl::Status status = group.ApplyResult(
      result, vocab_size_, groups_->next_plan(), running.watcher.get());
  SchedulerStats& stats = counts_->stats;
  stats.num_drafted_tokens += group.num_drafted_tokens() - num_drafted;
  stats.num_accepted_tokens += group.num_accepted_tokens() - num_accepted;
  stats.speculation.Add(group.TakeSpeculation());
  return status;
}

}  // namespace espalier
