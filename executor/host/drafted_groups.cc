#include "executor/host/drafted_groups.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"

namespace espalier {
namespace {

// Rows of one selection that verify drafts made before the same step.
struct DraftedRows {
  std::vector<const DraftSequence*> sequences;  // by rank; null: none
  std::vector<int> rows;                        // by rank, plan rows
};

std::vector<DraftedRows> DraftedRowsOf(const StepPlan& plan) {
  std::vector<DraftedRows> by_selection(plan.selections.size());
  for (const DraftSequence& sequence : plan.drafting) {
    const DraftTarget& target = sequence.verified_by;
    if (target.plan_row < 0) continue;
    DraftedRows& drafted = by_selection[target.selection];
    const size_t num_rows = plan.selections[target.selection].num_rows;
    drafted.sequences.resize(num_rows);
    drafted.rows.resize(num_rows);
    drafted.sequences[target.rank] = &sequence;
    drafted.rows[target.rank] = target.plan_row;
  }
  return by_selection;
}

void TakeNoteOf(const StepPlan& expanded, DraftedGroups::Asked* asked) {
  for (const PlanSelection& selection : expanded.selections) {
    asked->selections.push_back(selection.request);
  }
  asked->num_answers =
      expanded.selections.size() + expanded.continuations.size();
  for (const RequestId request : asked->selections) {
    asked->ranges.emplace(request, DraftedGroups::Asked::Range());
  }
  // Sequences of one request are contiguous.
  for (const DraftSequence& sequence : expanded.drafting) {
    const size_t i = asked->samples.size();
    asked->samples.push_back(sequence.sample);
    const auto found = asked->ranges.find(sequence.request);
    if (found == asked->ranges.end()) continue;
    if (found->second.end == 0) found->second.begin = i;
    found->second.end = i + 1;
  }
}

}  // namespace

bool DraftedGroups::HasContinuations(const StepPlan& plan) {
  return std::ranges::any_of(plan.continuations, [](const auto& continuation) {
    return !continuation.drafts.empty();
  });
}

// The live samples are a subsequence of the samples in the previous plan.
template <typename Fn>
bool DraftedGroups::ForEachDraftBefore(RequestId request, const Group& group,
                                       const Unread& before, const Fn& fn) {
  const auto& [begin, end] = before.asked->ranges.at(request);
  size_t i = begin;
  for (const Sample& sample : group.samples) {
    while (i < end && before.asked->samples[i] != sample.idx) ++i;
    if (i >= std::min(end, before.drafts.size())) return false;
    const PendingDraft& draft = before.drafts[i].pending;
    if (draft.verified() == nullptr || !fn(sample, draft)) return false;
  }
  return true;
}

bool DraftedGroups::CanFollow(const StepPlan& plan,
                              const Unread& before) const {
  return std::ranges::all_of(plan.continuations, [&](const auto& continuation) {
    if (continuation.drafts.empty()) return true;
    const auto found = groups_.find(continuation.request);
    if (found == groups_.end() || found->second.samples.empty()) return true;
    if (!before.asked->ranges.contains(continuation.request)) return true;
    const ScoreProcessors& processors = continuation.params->processors;
    if (processors.needs_history() || processors.has_edits_by_place()) {
      return false;
    }
    // Edits do not depend on the number of accepted tokens.
    const auto has_same_edits = [&](const Sample& sample,
                                    const PendingDraft& draft) {
      const int first = static_cast<int>(sample.generated.size()) + 1;
      const int last =
          first + draft.num_tokens() + continuation.drafts.num_tokens;
      const int num_min = processors.min_new_tokens;
      return first >= num_min || last < num_min;
    };
    return !found->second.keeps_histories &&
           ForEachDraftBefore(continuation.request, found->second, before,
                              has_same_edits);
  });
}

DraftedGroups::Asked DraftedGroups::Expand(StepPlan* plan,
                                           const Unread& before) {
  SetGroups(*plan);
  Asked asked;
  asked.num_planned = plan->selections.size();
  asked.num_drafting = plan->drafting.size();
  if (!HasContinuations(*plan)) {
    TakeNoteOf(*plan, &asked);
    return asked;
  }
  StepPlan expanded = *plan;
  expanded.continuations.clear();
  for (const GroupContinuation& continuation : plan->continuations) {
    asked.continuations.push_back({.request = continuation.request});
    Asked::Continued& continued = asked.continuations.back();
    if (continuation.drafts.empty()) {
      expanded.continuations.push_back(continuation);
      continue;
    }
    const auto found = groups_.find(continuation.request);
    if (found == groups_.end() || found->second.samples.empty()) continue;
    SetPages(continuation.drafts, &found->second);
    continued.answer = static_cast<int>(expanded.selections.size());
    continued.num_drafting = static_cast<int>(found->second.samples.size());
    std::vector<PendingDraft> verified_before;
    if (before.asked != nullptr &&
        before.asked->ranges.contains(continuation.request)) {
      const auto add = [&](const Sample&, const PendingDraft& draft) {
        verified_before.push_back(draft);
        return true;
      };
      CHECK(
          ForEachDraftBefore(continuation.request, found->second, before, add))
          << "a sample has no draft to begin after";
    }
    continued.is_unread = !verified_before.empty();
    AddRows(continuation, found->second, std::move(verified_before), &expanded);
  }
  // Results of the remaining continuations come after those of all selections.
  int answer = static_cast<int>(expanded.selections.size());
  for (size_t i = 0; i < plan->continuations.size(); ++i) {
    if (!plan->continuations[i].drafts.empty()) continue;
    asked.continuations[i].answer = answer++;
  }
  TakeNoteOf(expanded, &asked);
  *plan = std::move(expanded);
  return asked;
}

void DraftedGroups::SetGroups(const StepPlan& plan) {
  for (const RequestId ended : plan.ended) groups_.erase(ended);
  const std::vector<DraftedRows> drafted = DraftedRowsOf(plan);
  for (size_t i = 0; i < plan.selections.size(); ++i) {
    const PlanSelection& selection = plan.selections[i];
    const DraftedRows& rows = drafted[i];
    if (rows.sequences.empty() ||
        std::ranges::find(rows.sequences, nullptr) != rows.sequences.end()) {
      groups_.erase(selection.request);
      continue;
    }
    Group group;
    group.prompt = rows.sequences[0]->prompt;
    group.eos_token_ids = selection.eos_token_ids;
    group.num_slots = selection.num_slots;
    group.keeps_histories = !selection.histories.empty();
    for (int rank = 0; rank < selection.num_rows; ++rank) {
      const PlanRow& row = plan.rows[rows.rows[rank]];
      const std::span<const PageId> pages = plan.row_pages(rows.rows[rank]);
      group.samples.push_back({.idx = selection.samples[rank],
                               .slot = selection.slots[rank],
                               .sequence = row.sequence,
                               .position = row.first_position,
                               .cum_log_prob = selection.cum_log_probs[rank],
                               .generated = rows.sequences[rank]->generated,
                               .pages = {pages.begin(), pages.end()}});
    }
    groups_[selection.request] = std::move(group);
  }
}

void DraftedGroups::SetPages(const ContinuedDrafts& drafts, Group* group) {
  for (Sample& sample : group->samples) {
    const auto own = std::ranges::find(drafts.slots, sample.slot,
                                       &ContinuedDrafts::SlotPages::slot);
    CHECK(own != drafts.slots.end())
        << "no pages for slot " << sample.slot << ", where a sample lives";
    CHECK(own->first_place >= 0 && own->first_place <= sample.pages.size())
        << "pages from place " << own->first_place << " on, slot "
        << sample.slot << " has " << sample.pages.size();
    sample.pages.resize(own->first_place);
    sample.pages.insert(sample.pages.end(), own->pages.begin(),
                        own->pages.end());
  }
}

void DraftedGroups::AddRows(const GroupContinuation& continuation,
                            const Group& group,
                            std::vector<PendingDraft> verified_before,
                            StepPlan* plan) {
  const int num_drafts = continuation.drafts.num_tokens;
  const bool is_unread = !verified_before.empty();
  PlanSelection selection = SelectionOf(continuation, group, is_unread);
  selection.first_logits = plan->num_logits;
  for (int rank = 0; rank < selection.num_rows; ++rank) {
    const Sample& sample = group.samples[rank];
    plan->drafting.push_back(
        {.request = continuation.request,
         .sample = sample.idx,
         .prompt = group.prompt,
         .generated = sample.generated,
         .num_tokens = num_drafts,
         .params = continuation.params,
         .verified_by = {.plan_row = static_cast<int>(plan->rows.size()),
                         .selection = static_cast<int>(plan->selections.size()),
                         .rank = rank},
         .verified_before = is_unread ? verified_before[rank] : PendingDraft(),
         .cum_log_prob = sample.cum_log_prob});
    plan->rows.push_back(
        {.sequence = sample.sequence,
         .first_token = static_cast<int>(plan->tokens.size()),
         .num_tokens = 1 + num_drafts,
         .first_position = sample.position + (is_unread ? 1 : 0),
         .num_logits = 1 + num_drafts,
         .first_logits = plan->num_logits});
    plan->num_logits += 1 + num_drafts;
    plan->tokens.push_back(sample.generated.back());
    plan->tokens.resize(plan->tokens.size() + num_drafts);
    plan->page_indices.append(sample.pages);
    plan->page_indptr.push_back(static_cast<int>(plan->page_indices.size()));
  }
  selection.verified_before = std::move(verified_before);
  plan->selections.push_back(std::move(selection));
}

PlanSelection DraftedGroups::SelectionOf(const GroupContinuation& continuation,
                                         const Group& group, bool is_unread) {
  const int num_drafts = continuation.drafts.num_tokens;
  PlanSelection selection;
  selection.request = continuation.request;
  selection.num_rows = static_cast<int>(group.samples.size());
  selection.num_candidates = continuation.num_candidates;
  selection.params = continuation.params;
  selection.num_slots = group.num_slots;
  selection.eos_token_ids = group.eos_token_ids;
  selection.max_draft_tokens = num_drafts;
  bool differ = false;
  const auto num_generated = [&](const Sample& sample) {
    return static_cast<int>(sample.generated.size()) + (is_unread ? 1 : 0);
  };
  selection.num_generated = num_generated(group.samples[0]);
  for (const Sample& sample : group.samples) {
    differ = differ || num_generated(sample) != selection.num_generated;
    selection.row_num_generated.push_back(num_generated(sample));
    selection.cum_log_probs.push_back(sample.cum_log_prob);
    selection.samples.push_back(sample.idx);
    selection.slots.push_back(sample.slot);
    selection.drafts.emplace_back(num_drafts);
    if (group.keeps_histories) selection.histories.push_back(sample.generated);
  }
  if (!differ) selection.row_num_generated = {};
  return selection;
}

}  // namespace espalier
