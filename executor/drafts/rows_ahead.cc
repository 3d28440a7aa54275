#include "executor/drafts/rows_ahead.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace espalier {
namespace {

bool IsVerifiedNow(const DraftSequence& sequence) {
  return sequence.verified_by.plan_row >= 0;
}

// Marks a sequence whose sample has ended.
void SetEnded(DraftSequence* sequence) { sequence->num_tokens = 0; }
bool HasEnded(const DraftSequence& sequence) {
  return sequence.num_tokens == 0;
}

// True if the rows of the sequence's selection are ahead.
bool IsAhead(const StepPlan& plan, const DraftSequence& sequence) {
  return IsVerifiedNow(sequence) &&
         plan.selections[sequence.verified_by.selection]
             .as_draws()
             ->drafts.is_ahead;
}

RowsAhead::Asked RecordOf(const StepPlan& plan) {
  RowsAhead::Asked asked;
  asked.num_answers = plan.selections.size() + plan.continuations.size();
  int draft = 0;
  for (const DraftSequence& sequence : plan.drafting) {
    if (!IsVerifiedNow(sequence)) continue;
    const auto [row, idx, rank] = sequence.verified_by;
    const size_t selection_idx = idx;
    if (asked.groups.empty() ||
        asked.groups.back().selection != selection_idx) {
      const PlanSelection& selection = plan.selections[selection_idx];
      const DrawSelection& draws = *selection.as_draws();
      asked.groups.push_back(
          {.request = selection.request,
           .selection = selection_idx,
           .eos_token_ids = selection.eos_token_ids,
           .samples = draws.samples,
           .drafts = std::vector<int>(selection.num_rows, -1),
           .is_unread = !draws.drafts.verified_before.empty()});
    }
    if (!HasEnded(sequence)) asked.groups.back().drafts[rank] = draft++;
  }
  for (const RowsAhead::Asked::Group& group : asked.groups) {
    if (group.samples.empty()) --asked.num_answers;
  }
  return asked;
}

// Finds drafts of the previous plan, for sequences in the order of the next
// one, which has the same groups in nearly the same order.
class DraftsBefore {
 public:
  explicit DraftsBefore(const RowsAhead::Unread& before) : before_(before) {}

  // True if the previous plan has drafts of the request.
  bool Has(RequestId request) {
    if (before_.asked == nullptr) return false;
    const auto& groups = before_.asked->groups;
    for (size_t i = 0; i < groups.size(); ++i, ++group_, row_ = 0) {
      if (group_ >= groups.size()) group_ = 0;
      if (groups[group_].request == request) return true;
    }
    return false;
  }
  // Returns the pending draft whose verification the device reports; null if
  // there is none. REQUIRES: Has(); a request's samples in ascending order.
  const PendingDraft* Find(int sample) {
    const RowsAhead::Asked::Group& group = before_.asked->groups[group_];
    const SmallVector<int>& samples = group.samples;
    while (row_ < samples.size() && samples[row_] < sample) ++row_;
    if (row_ == samples.size() || samples[row_] != sample) return nullptr;
    const int draft = group.drafts[row_];
    if (draft < 0 || draft >= std::ssize(before_.drafts)) return nullptr;
    const PendingDraft& pending = before_.drafts[draft].pending;
    return pending.verified() == nullptr ? nullptr : &pending;
  }

 private:
  const RowsAhead::Unread before_;
  size_t group_ = 0;
  size_t row_ = 0;
};

// Returns the sample's part of a result; null if it has ended.
const RowsAhead::Sample* FindSample(const std::vector<RowsAhead::Sample>& last,
                                    int idx) {
  const auto found =
      std::ranges::lower_bound(last, idx, {}, &RowsAhead::Sample::idx);
  return found == last.end() || found->idx != idx ? nullptr : &*found;
}

// True if the result has at least one token for each of `num_samples`.
bool IsValid(const SelectionResult& answer, size_t num_samples) {
  const std::vector<int>& counts = answer.num_tokens;
  if (!answer.error.ok() || counts.size() != num_samples) return false;
  int64_t num_left = std::ssize(answer.candidates);
  for (const int count : counts) {
    if (count < 1 || count > num_left) return false;
    num_left -= count;
  }
  return true;
}

}  // namespace

bool RowsAhead::HasRowsAhead(const StepPlan& plan) {
  return std::ranges::any_of(plan.drafting, [&](const auto& sequence) {
    return IsAhead(plan, sequence);
  });
}

bool RowsAhead::CanFollow(const StepPlan& plan, const Unread& before) {
  DraftsBefore drafts(before);
  for (const DraftSequence& sequence : plan.drafting) {
    if (!IsAhead(plan, sequence) || !drafts.Has(sequence.request)) continue;
    const ScoreProcessors& processors = sequence.params->processors;
    if (processors.needs_history() || processors.has_edits_by_place()) {
      return false;
    }
    const PendingDraft* const draft = drafts.Find(sequence.sample);
    if (draft == nullptr) return false;
    // Edits must not depend on the number of accepted tokens.
    const int first = static_cast<int>(sequence.generated.size()) + 1;
    const int last = first + draft->num_tokens() + sequence.num_tokens;
    const int num_min = processors.min_new_tokens;
    if (first < num_min && last >= num_min) return false;
  }
  return true;
}

RowsAhead::Asked RowsAhead::Complete(StepPlan* plan, const Unread& before) {
  for (const RequestId ended : plan->ended) last_.erase(ended);
  if (!HasRowsAhead(*plan)) return RecordOf(*plan);
  StepPlan completed = *plan;
  std::vector<int> ended_rows;
  DraftsBefore drafts_before(before);
  const std::span<DraftSequence> all = completed.drafting;
  for (size_t begin = 0, end = 0; begin < all.size(); begin = end) {
    const DraftSequence& first = all[begin];
    const int idx = first.verified_by.selection;
    for (end = begin + 1; end < all.size(); ++end) {
      if (all[end].verified_by.selection != idx) break;
    }
    if (!IsAhead(completed, first)) continue;
    const auto sequences = all.subspan(begin, end - begin);
    SampleDrafts& drafts = completed.selections.Edit(idx).EditDraws().drafts;
    drafts.is_ahead = false;
    if (!drafts_before.Has(first.request)) {
      CompleteRows(sequences, &ended_rows, &completed);
      continue;
    }
    for (DraftSequence& sequence : sequences) {
      const PendingDraft* const draft = drafts_before.Find(sequence.sample);
      CHECK(draft != nullptr) << "a sample has no draft to begin after";
      sequence.verified_before = *draft;
      drafts.verified_before.push_back(*draft);
    }
  }
  Asked asked = RecordOf(completed);
  asked.ended_rows = std::move(ended_rows);
  std::erase_if(completed.drafting, HasEnded);
  *plan = std::move(completed);
  return asked;
}

void RowsAhead::CompleteRows(std::span<DraftSequence> sequences,
                             std::vector<int>* ended_rows,
                             StepPlan* plan) const {
  PlanSelection& selection =
      plan->selections.Edit(sequences.front().verified_by.selection);
  DrawSelection& draws = selection.EditDraws();
  const auto found = last_.find(selection.request);
  SmallVector<int> num_generated;
  int num_live = 0;
  for (int rank = 0; rank < selection.num_rows; ++rank) {
    DraftSequence& sequence = sequences[rank];
    const int row_idx = sequence.verified_by.plan_row;
    const Sample* const sample =
        found == last_.end() ? nullptr
                             : FindSample(found->second, sequence.sample);
    if (sample == nullptr) {
      ended_rows->push_back(row_idx);
      SetEnded(&sequence);
      continue;
    }
    const std::vector<TokenId>& tokens = sample->tokens;
    const int num_ahead = static_cast<int>(tokens.size()) - 1;
    PlanRow& row = plan->rows[row_idx];
    row.first_position += num_ahead;
    plan->tokens[row.first_token] = tokens.back();
    num_generated.push_back(selection.num_generated_of(rank) + num_ahead);
    sequence.generated.insert(sequence.generated.end(), tokens.begin(),
                              tokens.end());
    sequence.cum_log_prob = sample->cum_log_prob;
    sequence.verified_by.rank = num_live;
    selection.cum_log_probs[num_live] = sample->cum_log_prob;
    selection.slots[num_live] = selection.slots[rank];
    draws.samples[num_live] = draws.samples[rank];
    draws.drafts.tokens[num_live] = draws.drafts.tokens[rank];
    if (!selection.histories.empty()) {
      std::vector<TokenId> history = std::move(selection.histories[rank]);
      history.insert(history.end(), tokens.begin(), tokens.end());
      selection.histories[num_live] = std::move(history);
    }
    ++num_live;
  }
  selection.num_rows = num_live;
  selection.cum_log_probs.resize(num_live);
  selection.slots.resize(num_live);
  draws.samples.resize(num_live);
  draws.drafts.tokens.resize(num_live);
  if (!selection.histories.empty()) selection.histories.resize(num_live);
  if (num_live == 0) return;
  selection.num_generated = num_generated[0];
  const bool differ = std::ranges::any_of(num_generated, [&](int count) {
    return count != selection.num_generated;
  });
  draws.row_num_generated = differ ? num_generated : SmallVector<int>();
}

void RowsAhead::Advance(std::span<const DraftedTokens> drafts, Asked* asked,
                        absl::StatusOr<StepResult>* result) {
  std::vector<Asked::Group>& groups = asked->groups;
  if (groups.empty()) return;
  if (!result->ok() || (*result)->selections.size() != asked->num_answers) {
    for (const Asked::Group& group : groups) last_.erase(group.request);
    if (result->ok()) (*result)->selections.clear();
    return;
  }
  std::vector<SelectionResult>& answers = (*result)->selections;
  size_t num_removed = 0;
  for (Asked::Group& group : groups) {
    if (group.samples.empty()) {
      ++num_removed;
      continue;
    }
    Prepare(answers[group.selection - num_removed], drafts, &group);
    last_.try_emplace(group.request);
  }
  answers.reserve(answers.size() + num_removed);
  // From here on nothing allocates, so that the update cannot fail halfway.
  for (Asked::Group& group : groups) {
    if (group.samples.empty()) {
      answers.insert(answers.begin() + group.selection,
                     SelectionResult{.request = group.request});
      last_.erase(group.request);
      continue;
    }
    SelectionResult& answer = answers[group.selection];
    if (group.is_unread) answer = std::move(group.completed);
    answer.num_drafted = std::move(group.num_drafted);
    const auto last = last_.find(group.request);
    if (group.next.empty()) {
      last_.erase(last);
    } else {
      last->second = std::move(group.next);
    }
  }
}

void RowsAhead::Prepare(const SelectionResult& answer,
                        std::span<const DraftedTokens> drafts,
                        Asked::Group* group) const {
  group->next.clear();
  group->num_drafted.clear();
  if (group->is_unread) group->completed = answer;
  if (!IsValid(answer, group->samples.size())) return;
  SelectionResult completed = {
      .request = answer.request,
      .has_unverified_drafts = answer.has_unverified_drafts};
  const auto before = last_.find(group->request);
  bool is_behind = false;
  size_t end = 0;  // after the row's candidates
  for (size_t row = 0; row < group->samples.size(); ++row) {
    const int count = answer.num_tokens[row];
    const size_t first = std::exchange(end, end + count);
    Sample next = {.idx = group->samples[row]};
    if (group->is_unread) {
      const Sample* const sample = before == last_.end()
                                       ? nullptr
                                       : FindSample(before->second, next.idx);
      if (sample == nullptr) continue;  // it ended in the preceding step
      next.cum_log_prob = sample->cum_log_prob;
    }
    bool ends = false;
    const int rank = static_cast<int>(completed.num_tokens.size());
    for (size_t i = first; i < end; ++i) {
      const auto& [beam, token, sum] = answer.candidates[i];
      next.cum_log_prob = group->is_unread ? next.cum_log_prob + sum : sum;
      next.tokens.push_back(token);
      ends = ends || token < 0 ||
             std::ranges::binary_search(group->eos_token_ids, token);
      if (!group->is_unread) continue;
      completed.candidates.push_back({rank, token, next.cum_log_prob});
      if (answer.logprobs.empty()) continue;
      completed.logprobs.push_back(answer.logprobs[i]);
    }
    completed.num_tokens.push_back(count);
    if (!ends) group->next.push_back(std::move(next));
    const int draft = group->drafts[row];
    const bool has_draft = draft >= 0;
    group->num_drafted.push_back(
        has_draft ? static_cast<int>(drafts[draft].tokens.size()) : 0);
    is_behind = is_behind || (has_draft && drafts[draft].is_behind);
  }
  if (group->is_unread) group->completed = std::move(completed);
  const bool has_drafts = std::ranges::any_of(
      group->num_drafted, [](int count) { return count > 0; });
  if (is_behind && !has_drafts) group->num_drafted.clear();
}

}  // namespace espalier
