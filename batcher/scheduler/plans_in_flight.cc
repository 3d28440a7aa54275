#include "batcher/scheduler/plans_in_flight.h"

#include <algorithm>

#include "base/status.h"

namespace espalier {

absl::Status ValidateStepResult(const PlanInFlight& plan,
                                const StepResult& result) {
  const std::span<const RequestId> asked = plan.asked();
  if (result.selections.size() != asked.size()) {
    return Internal("a step of ", asked.size(), " selections was ",
                    "answered with ", result.selections.size());
  }
  for (size_t i = 0; i < asked.size(); ++i) {
    const RequestId answered = result.selections[i].request;
    if (answered == asked[i]) continue;
    return Internal("selection ", i, " of a step is of request ", asked[i],
                    ", its answer of ", answered);
  }
  const auto agree = [](const std::pair<RequestId, size_t>& scored,
                        const PromptLogprobsResult& answer) {
    return scored.first == answer.request;
  };
  size_t num_drafted = 0;
  for (const auto& [request, count] : plan.drafted) num_drafted += count;
  if (result.drafts.size() != num_drafted) {
    return Internal("a step that drafts for ", num_drafted, " sequences was ",
                    "answered with ", result.drafts.size(), " drafts");
  }
  if (std::equal(plan.scored.begin(), plan.scored.end(),
                 result.scorings.begin(), result.scorings.end(), agree)) {
    return absl::OkStatus();
  }
  return Internal("a step of ", plan.scored.size(), " scorings of prompts was ",
                  "answered with ", result.scorings.size(), " or with others");
}

PlanInFlight& PlansInFlight::Push(const StepPlan& plan,
                                  std::vector<RequestId> requests,
                                  std::span<const RequestId> saved) {
  PlanInFlight remembered;
  remembered.requests = std::move(requests);
  remembered.saved.assign(saved.begin(), saved.end());
  // One selection for each, in order.
  remembered.asks_all = plan.selections.size() == remembered.requests.size() &&
                        plan.continuations.empty();
  if (!remembered.asks_all) {
    remembered.asked_of.reserve(plan.selections.size() +
                                plan.continuations.size());
    for (const PlanSelection& selection : plan.selections) {
      remembered.asked_of.push_back(selection.request);
    }
  }
  remembered.num_selections = plan.selections.size();
  int num_tokens_ahead = 0;
  for (const GroupContinuation& continuation : plan.continuations) {
    remembered.asked_of.push_back(continuation.request);
    num_tokens_ahead += static_cast<int>(continuation.tail_pages.size());
  }
  const int64_t num_source_tokens = plan.NumSourceTokens();
  remembered.num_tokens =
      std::ssize(plan.tokens) + num_source_tokens + num_tokens_ahead;
  for (const PlanPromptLogprobs& scoring : plan.scorings) {
    remembered.scored.push_back({scoring.request, scoring.tokens.size()});
  }
  remembered.drafts = !plan.drafting.empty();
  for (const DraftSequence& sequence : plan.drafting) {
    if (sequence.verified_by.plan_row >= 0) continue;
    auto& drafted = remembered.drafted;
    if (drafted.empty() || drafted.back().first != sequence.request) {
      drafted.push_back({sequence.request, 0});
    }
    ++drafted.back().second;
  }
  // Rows that decode have logits for all their tokens.
  if (plan.num_logits == std::ssize(plan.tokens) && num_source_tokens == 0 &&
      plan.scorings.empty() && plan.continuations.empty()) {
    remembered.num_decode_only_tokens = plan.num_logits;
  }
  remembered.only_drafts =
      !plan.drafting.empty() && plan.rows.empty() && plan.continuations.empty();
  remembered.num_page_copies = static_cast<int>(plan.page_copies.size());
  return plans_.emplace_back(std::move(remembered));
}

PlanInFlight PlansInFlight::TakeOldest() {
  PlanInFlight oldest = std::move(plans_.front());
  plans_.pop_front();
  return oldest;
}

void AddStep(const StepCounts& step, SchedulerStats* stats) {
  ++stats->num_steps;
  stats->peak_pages = std::max(stats->peak_pages, step.num_pages);
  stats->peak_unshared_pages =
      std::max(stats->peak_unshared_pages, step.num_unshared_pages);
  stats->page_steps += step.num_pages;
  stats->unshared_page_steps += step.num_unshared_pages;
  stats->num_decode_rows += step.num_rows_ahead;
  stats->num_tail_copies += step.num_tail_copies;
  stats->max_tail_copies =
      std::max(stats->max_tail_copies, step.num_tail_copies);
}

}  // namespace espalier
