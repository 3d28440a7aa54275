#include "executor/drafts/drafted_groups.h"

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

// A completed result, held until all memory for the update is allocated.
struct Completed {
  size_t continuation = 0;
  SelectionResult answer = {};
  std::vector<bool> lives = {};
};

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
  for (const DraftSequence& sequence : plan->drafting) {
    const DraftTarget& target = sequence.verified_by;
    const bool is_verified = target.plan_row >= 0;
    asked.drafting.push_back(
        {target,
         is_verified ? plan->selections[target.selection].num_rows : 0});
  }
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
    const SmallVector<int>& samples = selection.as_draws()->samples;
    for (int rank = 0; rank < selection.num_rows; ++rank) {
      const PlanRow& row = plan.rows[rows.rows[rank]];
      const std::span<const PageId> pages = plan.row_pages(rows.rows[rank]);
      group.samples.push_back({.idx = samples[rank],
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
  selection.EditDraws().drafts.verified_before = std::move(verified_before);
  plan->selections.push_back(std::move(selection));
}

PlanSelection DraftedGroups::SelectionOf(const GroupContinuation& continuation,
                                         const Group& group, bool is_unread) {
  const int num_drafts = continuation.drafts.num_tokens;
  PlanSelection selection;
  selection.request = continuation.request;
  selection.num_rows = static_cast<int>(group.samples.size());
  selection.params = continuation.params;
  selection.num_slots = group.num_slots;
  selection.eos_token_ids = group.eos_token_ids;
  DrawSelection& draws = selection.Choose<DrawSelection>();
  draws.drafts.max_tokens = num_drafts;
  bool differ = false;
  const auto num_generated = [&](const Sample& sample) {
    return static_cast<int>(sample.generated.size()) + (is_unread ? 1 : 0);
  };
  selection.num_generated = num_generated(group.samples[0]);
  for (const Sample& sample : group.samples) {
    differ = differ || num_generated(sample) != selection.num_generated;
    draws.row_num_generated.push_back(num_generated(sample));
    selection.cum_log_probs.push_back(sample.cum_log_prob);
    draws.samples.push_back(sample.idx);
    selection.slots.push_back(sample.slot);
    draws.drafts.tokens.emplace_back(num_drafts);
    if (group.keeps_histories) selection.histories.push_back(sample.generated);
  }
  if (!differ) draws.row_num_generated = {};
  return selection;
}

void DraftedGroups::Advance(Asked* asked, absl::StatusOr<StepResult>* result) {
  const bool is_answer =
      result->ok() && (*result)->selections.size() >= asked->selections.size();
  if (!is_answer) {
    for (const RequestId request : asked->selections) groups_.erase(request);
    return;
  }
  // All memory is allocated first, so that the update cannot fail halfway.
  std::vector<SelectionResult>& answers = (*result)->selections;
  std::vector<Completed> completed;
  std::vector<const SelectionResult*> taken;  // by selection
  for (const SelectionResult& answer : answers) taken.push_back(&answer);
  completed.reserve(asked->continuations.size());
  size_t first_drafting = asked->drafting.size();
  for (size_t c = 0; c < asked->continuations.size(); ++c) {
    const Asked::Continued& continued = asked->continuations[c];
    const auto found = groups_.find(continued.request);
    // A result with another number of rows is invalid.
    const bool fits = continued.answer >= 0 &&
                      answers[continued.answer].num_tokens.size() ==
                          static_cast<size_t>(continued.num_drafting);
    if (continued.is_unread && fits && found != groups_.end()) {
      Completed& of_group =
          completed.emplace_back(Completed{.continuation = c});
      of_group.answer =
          Complete(answers[continued.answer], *asked, first_drafting,
                   found->second, &of_group.lives);
      taken[continued.answer] = &of_group.answer;
    }
    first_drafting += continued.num_drafting;
  }
  for (size_t i = 0; i < asked->selections.size(); ++i) {
    const auto found = groups_.find(asked->selections[i]);
    if (found == groups_.end()) continue;
    const SelectionResult& answer = *taken[i];
    if (IsAnswer(answer, found->second)) MakeRoomFor(answer, &found->second);
  }
  for (Completed& of_group : completed) {
    Asked::Continued& continued = asked->continuations[of_group.continuation];
    continued.lives = std::move(of_group.lives);
    answers[continued.answer] = std::move(of_group.answer);
  }
  for (size_t i = 0; i < asked->selections.size(); ++i) {
    const auto found = groups_.find(asked->selections[i]);
    if (found == groups_.end()) continue;
    const SelectionResult& answer = answers[i];
    if (IsAnswer(answer, found->second)) {
      TakeTokens(answer, &found->second);
    } else {
      groups_.erase(found);
    }
  }
}

SelectionResult DraftedGroups::Complete(const SelectionResult& answer,
                                        const Asked& asked,
                                        size_t first_drafting,
                                        const Group& group,
                                        std::vector<bool>* lives) {
  const std::vector<int>& counts = answer.num_tokens;
  SelectionResult completed = {
      .request = answer.request,
      .has_unverified_drafts = answer.has_unverified_drafts,
      .error = answer.error};
  size_t first = 0;  // index of the row's first candidate
  auto sample = group.samples.begin();
  for (size_t row = 0; row < counts.size(); ++row) {
    const size_t end = first + std::max(counts[row], 0);
    if (end > answer.candidates.size()) {  // an invalid result
      lives->clear();
      return answer;
    }
    const int idx = asked.samples[first_drafting + row];
    lives->push_back(sample != group.samples.end() && sample->idx == idx);
    if (lives->back()) {
      const int rank = static_cast<int>(sample - group.samples.begin());
      float sum = sample->cum_log_prob;
      for (size_t i = first; i < end; ++i) {
        sum += answer.candidates[i].cum_log_prob;
        completed.candidates.push_back({rank, answer.candidates[i].token, sum});
        if (answer.logprobs.empty()) continue;
        completed.logprobs.push_back(answer.logprobs[i]);
      }
      completed.num_tokens.push_back(counts[row]);
      ++sample;
    }
    first = end;
  }
  return completed;
}

bool DraftedGroups::IsAnswer(const SelectionResult& answer,
                             const Group& group) {
  const std::vector<int>& counts = answer.num_tokens;
  if (!answer.error.ok() || counts.size() != group.samples.size()) return false;
  int64_t num_left = std::ssize(answer.candidates);
  for (const int count : counts) {
    if (count < 1 || count > num_left) return false;
    num_left -= count;
  }
  return true;
}

void DraftedGroups::MakeRoomFor(const SelectionResult& answer, Group* group) {
  for (size_t rank = 0; rank < group->samples.size(); ++rank) {
    std::vector<TokenId>& generated = group->samples[rank].generated;
    const size_t size = generated.size() + answer.num_tokens[rank];
    if (size <= generated.capacity()) continue;
    generated.reserve(std::max(size, 2 * generated.capacity()));
  }
}

void DraftedGroups::TakeTokens(const SelectionResult& answer, Group* group) {
  std::vector<Sample>& samples = group->samples;
  std::span<const Candidate> left = answer.candidates;
  size_t num_live = 0;  // live samples so far
  for (size_t rank = 0; rank < samples.size(); ++rank) {
    const std::span<const Candidate> run = left.first(answer.num_tokens[rank]);
    left = left.subspan(run.size());
    const bool ends = std::ranges::any_of(run, [&](const Candidate& drawn) {
      return drawn.token < 0 ||
             std::ranges::binary_search(group->eos_token_ids, drawn.token);
    });
    if (ends) continue;
    if (num_live < rank) samples[num_live] = std::move(samples[rank]);
    Sample& sample = samples[num_live++];
    sample.position += static_cast<int>(run.size());
    sample.cum_log_prob = run.back().cum_log_prob;
    for (const Candidate& drawn : run) sample.generated.push_back(drawn.token);
  }
  samples.erase(samples.begin() + num_live, samples.end());
}

std::vector<std::vector<int>> DraftedGroups::Asked::NumDrafted(
    std::span<const DraftedTokens> drafts) const {
  std::vector<std::vector<int>> counts(num_planned + continuations.size());
  std::vector<bool> are_behind(num_planned);
  auto own = drafts.begin();
  for (const auto& [target, num_samples] : drafting) {
    const DraftedTokens& draft = *own++;
    if (target.plan_row < 0) continue;
    counts[target.selection].resize(num_samples);
    counts[target.selection][target.rank] =
        static_cast<int>(draft.tokens.size());
    if (draft.is_behind) are_behind[target.selection] = true;
  }
  for (size_t i = 0; i < num_planned; ++i) {
    const bool has_drafts =
        std::ranges::any_of(counts[i], [](int count) { return count > 0; });
    if (are_behind[i] && !has_drafts) counts[i].clear();
  }
  for (size_t c = 0; c < continuations.size(); ++c) {
    std::vector<int>& of_group = counts[num_planned + c];
    bool is_behind = false;
    bool has_drafts = false;
    const std::vector<bool>& lives = continuations[c].lives;
    for (int i = 0; i < continuations[c].num_drafting; ++i, ++own) {
      if (!lives.empty() && !lives[i]) continue;
      of_group.push_back(static_cast<int>(own->tokens.size()));
      has_drafts = has_drafts || !own->tokens.empty();
      is_behind = is_behind || own->is_behind;
    }
    if (is_behind && !has_drafts) of_group.clear();
  }
  return counts;
}

void DraftedGroups::Asked::Restore(std::vector<DraftedTokens>* drafts,
                                   StepResult* result) const {
  if (continuations.empty() && drafting.empty()) return;
  const bool is_answer = result->selections.size() == num_answers;
  std::vector<std::vector<int>> num_drafted;
  std::vector<SelectionResult> answers;
  if (is_answer) {
    num_drafted = NumDrafted(*drafts);
    answers.reserve(num_planned + continuations.size());
  }
  // From here on nothing allocates, because what was moved out cannot be moved
  // again by a repeated call.
  size_t num_later = 0;
  for (size_t i = 0; i < drafting.size(); ++i) {
    if (drafting[i].target.plan_row >= 0) continue;
    if (num_later < i) (*drafts)[num_later] = std::move((*drafts)[i]);
    ++num_later;
  }
  drafts->resize(num_later);
  if (!is_answer) return result->selections.clear();
  for (size_t i = 0; i < num_planned; ++i) {
    result->selections[i].num_drafted = std::move(num_drafted[i]);
  }
  if (continuations.empty()) return;
  const auto take = [&](size_t answer) {
    answers.push_back(std::move(result->selections[answer]));
  };
  for (size_t i = 0; i < num_planned; ++i) take(i);
  for (size_t c = 0; c < continuations.size(); ++c) {
    if (continuations[c].answer < 0) {
      answers.push_back({.request = continuations[c].request});
      continue;
    }
    take(continuations[c].answer);
    answers.back().num_drafted = std::move(num_drafted[num_planned + c]);
  }
  result->selections = std::move(answers);
}

}  // namespace espalier
