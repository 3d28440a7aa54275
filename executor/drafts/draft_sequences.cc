#include "executor/drafts/draft_sequences.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/check.h"
#include "base/page_count.h"

namespace espalier {
namespace {

// Returns the number of fed tokens to keep: the common prefix, without the last
// token of `text`, which is fed again for its logits.
size_t NumToKeep(const DraftText& fed, const DraftText& text) {
  return std::min(CommonLength(fed, text), text.size() - 1);
}

}  // namespace

void DraftSequences::PagesInUse::Add(std::span<const PageId> pages) {
  for (const PageId page : pages) num_pages_ += num_users_[page.value]++ == 0;
}

void DraftSequences::PagesInUse::Remove(std::span<const PageId> pages) {
  for (const PageId page : pages) num_pages_ -= --num_users_[page.value] == 0;
}

void DraftSequences::PagesInUse::Clear() {
  std::ranges::fill(num_users_, 0);
  num_pages_ = 0;
}

void DraftSequences::BeginRun() {
  ++num_runs_;
  ForgetCopies();
  in_use_.Clear();  // also what an error left
}

void DraftSequences::Begin(const Key& key, const DraftText& text) {
  const auto [entry, is_new] =
      states_.try_emplace(key, State{{}, PageTable(&pool_)});
  if (is_new) by_run_.emplace(entry->second.last_run, key);
  SetRun(entry, num_runs_);
  Update(key, [&](State& state) {
    const size_t num_kept = NumToKeep(state.fed, text);
    state.fed.Truncate(num_kept);
    state.pages.Truncate(static_cast<int>(num_kept));
  });
}

void DraftSequences::Keep(const Key& key) {
  const Entry entry = states_.find(key);
  if (entry != states_.end()) SetRun(entry, num_runs_);
}

void DraftSequences::BeginBeams(RequestId request,
                                std::span<const DraftText* const> texts) {
  const auto [begin, end] = OfRequest(request);
  std::vector<State> beams;
  for (const DraftText* const text : texts) {
    State& beam = beams.emplace_back(State{{}, PageTable(&pool_), num_runs_});
    const State* longest = nullptr;
    size_t num_kept = 0;
    for (Entry other = begin; other != end; ++other) {
      const size_t length = NumToKeep(other->second.fed, *text);
      if (length <= num_kept) continue;
      longest = &other->second;
      num_kept = length;
    }
    if (longest == nullptr) continue;
    beam.fed = text->First(num_kept);
    beam.pages = longest->pages.Fork(static_cast<int>(num_kept));
  }
  Erase(begin, end);
  for (size_t rank = 0; rank < beams.size(); ++rank) {
    Put({request, static_cast<int>(rank)}, std::move(beams[rank]));
  }
}

void DraftSequences::Fork(const Key& from, const Key& to) {
  const State& state = states_.at(from);
  State fork = {state.fed, state.pages.Fork(state.pages.num_tokens()),
                num_runs_};
  Put(to, std::move(fork));
}

void DraftSequences::Share(const Key& from, const Key& to, size_t num_tokens) {
  const State& source = states_.at(from);
  Update(to, [&](State& state) {
    state.fed = source.fed.First(num_tokens);
    state.pages = source.pages.Fork(static_cast<int>(num_tokens));
  });
}

void DraftSequences::SetFed(const Key& key, const DraftText& text,
                            size_t num_tokens) {
  Update(key, [&](State& state) {
    state.fed.Truncate(std::min(CommonLength(state.fed, text), num_tokens));
    state.fed.GrowTo(num_tokens, text);
    state.pages.Truncate(static_cast<int>(num_tokens));
  });
}

void DraftSequences::GiveUp(const Key& key) {
  SetRun(states_.find(key), num_runs_ - 1);
}

void DraftSequences::Forget(RequestId request) {
  ForgetCopies();  // no step is being written
  const auto [begin, end] = OfRequest(request);
  Erase(begin, end);
}

bool DraftSequences::AddRow(const Key& key, const DraftText& text, size_t end,
                            int num_logits, StepPlan* step, int num_ahead) {
  const State& state = states_.at(key);
  const int first = static_cast<int>(state.fed.size());
  const int count = static_cast<int>(end) - first;
  const size_t num_copies = step->page_copies.size();
  bool has_pages = MakeRoom(NumPagesForRow(key, end + num_ahead), *step);
  Update(key, [&](State& of_row) {
    has_pages = has_pages &&
                of_row.pages.Append(count + num_ahead, &step->page_copies).ok();
    if (has_pages) return of_row.fed.GrowTo(end, text);
    of_row.fed.Truncate(0);
    ReleasePages(&of_row);
  });
  if (!has_pages) return false;
  KeepCopied(std::span(step->page_copies).subspan(num_copies));
  step->rows.push_back({.first_token = static_cast<int>(step->tokens.size()),
                        .num_tokens = count,
                        .first_position = first,
                        .num_logits = num_logits,
                        .first_logits = step->num_logits});
  step->num_logits += num_logits;
  text.CopyTo(first, end, &step->tokens);
  step->page_indices.append(state.pages.page_ids());
  step->page_indptr.push_back(static_cast<int>(step->page_indices.size()));
  return true;
}

bool DraftSequences::AddRowAfter(const Key& key, size_t first, int num_tokens,
                                 StepPlan* step) {
  if (!Has(key)) return false;
  State& state = states_.at(key);
  const size_t end = first + num_tokens;
  const int count = static_cast<int>(end) - state.pages.num_tokens();
  const size_t num_copies = step->page_copies.size();
  bool has_pages =
      first <= state.fed.size() && MakeRoom(NumPagesForRow(key, end), *step);
  Update(key, [&](State& of_row) {
    has_pages =
        has_pages &&
        (count <= 0 || of_row.pages.Append(count, &step->page_copies).ok());
    if (has_pages) return;
    of_row.fed.Truncate(0);
    ReleasePages(&of_row);
  });
  if (!has_pages) return false;
  KeepCopied(std::span(step->page_copies).subspan(num_copies));
  step->rows.push_back({.first_token = static_cast<int>(step->tokens.size()),
                        .num_tokens = 1,
                        .first_position = static_cast<int>(first),
                        .num_logits = 1,
                        .first_logits = step->num_logits++});
  step->tokens.push_back(0);
  step->page_indices.append(state.pages.page_ids());
  step->page_indptr.push_back(static_cast<int>(step->page_indices.size()));
  return true;
}

int64_t DraftSequences::NumPagesForRow(const Key& key, size_t end) const {
  const PageTable& table = states_.at(key).pages;
  const bool copies_tail =
      table.room_in_tail() > 0 && table.pages().back().shared();
  return NumPages(static_cast<int64_t>(end), pool_.page_size()) -
         std::ssize(table.pages()) + (copies_tail ? 1 : 0);
}

bool DraftSequences::MakeRoom(int64_t num_pages, const StepPlan& step) {
  if (step.page_copies.empty()) ForgetCopies();
  if (pool_.num_free() >= num_pages) return true;
  if (pool_.num_pages() - in_use_.num_pages() < num_pages) return false;
  while (pool_.num_free() < num_pages) {
    const auto& [last_run, key] = *by_run_.begin();
    CHECK(last_run != num_runs_) << "a sequence of this run";
    const Entry oldest = states_.find(key);
    ReleasePages(&oldest->second);
    Erase(oldest, std::next(oldest));
  }
  return true;
}

void DraftSequences::Put(const Key& key, State state) {
  const Entry old = states_.find(key);
  if (old != states_.end()) Erase(old, std::next(old));
  const Entry entry = states_.emplace(key, std::move(state)).first;
  by_run_.emplace(entry->second.last_run, key);
  if (entry->second.last_run == num_runs_) {
    in_use_.Add(entry->second.pages.page_ids());
  }
}

std::pair<DraftSequences::Entry, DraftSequences::Entry>
DraftSequences::OfRequest(RequestId request) {
  const Entry begin = states_.lower_bound({request, 0});
  Entry end = begin;
  while (end != states_.end() && end->first.first == request) ++end;
  return {begin, end};
}

void DraftSequences::Erase(Entry begin, Entry end) {
  for (Entry entry = begin; entry != end; ++entry) {
    const State& state = entry->second;
    by_run_.erase({state.last_run, entry->first});
    if (state.last_run == num_runs_) in_use_.Remove(state.pages.page_ids());
  }
  states_.erase(begin, end);
}

void DraftSequences::SetRun(Entry entry, int64_t run) {
  State& state = entry->second;
  if (state.last_run == run) return;
  auto node = by_run_.extract({state.last_run, entry->first});
  node.value().first = run;
  by_run_.insert(std::move(node));
  if (state.last_run == num_runs_) in_use_.Remove(state.pages.page_ids());
  if (run == num_runs_) in_use_.Add(state.pages.page_ids());
  state.last_run = run;
}

template <typename Change>
void DraftSequences::Update(const Key& key, const Change& change) {
  State& state = states_.at(key);
  const bool is_of_run = state.last_run == num_runs_;
  if (is_of_run) in_use_.Remove(state.pages.page_ids());
  change(state);
  if (is_of_run) in_use_.Add(state.pages.page_ids());
}

void DraftSequences::ReleasePages(State* state) {
  for (const PageRef& page : state->pages.pages()) {
    if (is_copied_[page.id().value]) kept_.push_back(page);
  }
  state->pages.Clear();
}

void DraftSequences::KeepCopied(std::span<const PageCopy> copies) {
  for (const PageCopy& copy : copies) {
    copied_.push_back(copy.from);
    is_copied_[copy.from.value] = true;
    in_use_.Add({&copy.from, 1});
  }
}

void DraftSequences::ForgetCopies() {
  in_use_.Remove(copied_);
  for (const PageId page : copied_) is_copied_[page.value] = false;
  copied_.clear();
  kept_.clear();
}

}  // namespace espalier
