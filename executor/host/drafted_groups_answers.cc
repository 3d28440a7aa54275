// The part of DraftedGroups that applies the results of expanded plans.
#include <algorithm>
#include <span>
#include <utility>

#include "executor/host/drafted_groups.h"

namespace espalier {
namespace {

// A completed result, held until all memory for the update is allocated.
struct Completed {
  size_t continuation = 0;
  SelectionResult answer = {};
  std::vector<bool> lives = {};
};

}  // namespace

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
  size_t first_drafting = asked->num_drafting;
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
  std::vector<std::vector<int>> counts(continuations.size());
  auto own = drafts.begin() + num_drafting;
  for (size_t c = 0; c < continuations.size(); ++c) {
    bool is_behind = false;
    bool has_drafts = false;
    const std::vector<bool>& lives = continuations[c].lives;
    for (int i = 0; i < continuations[c].num_drafting; ++i, ++own) {
      if (!lives.empty() && !lives[i]) continue;
      counts[c].push_back(static_cast<int>(own->tokens.size()));
      has_drafts = has_drafts || !own->tokens.empty();
      is_behind = is_behind || own->is_behind;
    }
    if (is_behind && !has_drafts) counts[c].clear();
  }
  return counts;
}

void DraftedGroups::Asked::Restore(std::vector<DraftedTokens>* drafts,
                                   StepResult* result) const {
  if (continuations.empty()) return;
  if (result->selections.size() != num_answers) {  // an invalid result
    result->selections.clear();
    return drafts->resize(num_drafting);
  }
  std::vector<std::vector<int>> num_drafted = NumDrafted(*drafts);
  std::vector<SelectionResult> answers;
  answers.reserve(num_planned + continuations.size());
  // From here on nothing allocates, because results that were moved out cannot
  // be moved again by a repeated call.
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
    if (continuations[c].num_drafting == 0) continue;
    answers.back().num_drafted = std::move(num_drafted[c]);
  }
  drafts->resize(num_drafting);
  result->selections = std::move(answers);
}

}  // namespace espalier
