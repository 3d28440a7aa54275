#include "executor/host/draft_sequences.h"

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace espalier {
namespace {

// Of what was fed: the last token of `text` is fed for its logits.
size_t NumToKeep(const DraftText& fed, const DraftText& text) {
  return std::min(CommonLength(fed, text), text.size() - 1);
}

}  // namespace

void DraftSequences::Begin(const Key& key, const DraftText& text) {
  State& state =
      states_.try_emplace(key, State{{}, PageTable(&pool_)}).first->second;
  state.last_run = num_runs_;
  const size_t num_kept = NumToKeep(state.fed, text);
  state.fed.Truncate(num_kept);
  state.pages.Truncate(static_cast<int>(num_kept));
}

void DraftSequences::BeginBeams(RequestId request,
                                std::span<const DraftText* const> texts) {
  std::vector<State> kept;
  const auto begin = states_.lower_bound({request, 0});
  auto end = begin;
  for (; end != states_.end() && end->first.first == request; ++end) {
    kept.push_back(std::move(end->second));
  }
  states_.erase(begin, end);
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    State state = {{}, PageTable(&pool_), num_runs_};
    const State* longest = nullptr;
    size_t num_kept = 0;
    for (const State& other : kept) {
      const size_t length = NumToKeep(other.fed, *texts[rank]);
      if (length <= num_kept) continue;
      longest = &other;
      num_kept = length;
    }
    if (longest != nullptr) {
      state.fed = texts[rank]->First(num_kept);
      state.pages = longest->pages.Fork(static_cast<int>(num_kept));
    }
    states_.insert_or_assign({request, static_cast<int>(rank)},
                             std::move(state));
  }
}

void DraftSequences::Fork(const Key& from, const Key& to) {
  const State& state = states_.at(from);
  State fork = {state.fed, state.pages.Fork(state.pages.num_tokens()),
                num_runs_};
  states_.insert_or_assign(to, std::move(fork));
}

void DraftSequences::Share(const Key& from, const Key& to, size_t num_tokens) {
  const State& source = states_.at(from);
  State& state = states_.at(to);
  state.fed = source.fed.First(num_tokens);
  state.pages = source.pages.Fork(static_cast<int>(num_tokens));
}

void DraftSequences::SetFed(const Key& key, const DraftText& text,
                            size_t num_tokens) {
  State& state = states_.at(key);
  state.fed.Truncate(std::min(state.fed.size(), num_tokens));
  state.fed.GrowTo(num_tokens, text);
  state.pages.Truncate(static_cast<int>(num_tokens));
}

void DraftSequences::Forget(RequestId request) {
  const auto begin = states_.lower_bound({request, 0});
  auto end = begin;
  while (end != states_.end() && end->first.first == request) ++end;
  states_.erase(begin, end);
}

bool DraftSequences::AddRow(const Key& key, const DraftText& text, size_t end,
                            int num_logits, StepPlan* step, int num_ahead) {
  State& state = states_.at(key);
  const int first = static_cast<int>(state.fed.size());
  const int count = static_cast<int>(end) - first;
  if (!MakeRoom(NumPagesForRow(key, end + num_ahead)) ||
      !state.pages.Append(count + num_ahead, &step->page_copies).ok()) {
    state.fed.Truncate(0);
    state.pages.Clear();
    return false;
  }
  step->rows.push_back({.first_token = static_cast<int>(step->tokens.size()),
                        .num_tokens = count,
                        .first_position = first,
                        .num_logits = num_logits,
                        .first_logits = step->num_logits});
  step->num_logits += num_logits;
  text.CopyTo(first, end, &step->tokens);
  state.fed.GrowTo(end, text);
  for (const PageRef& page : state.pages.pages()) {
    step->page_indices.push_back(page.id());
  }
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

int64_t DraftSequences::NumPagesAvailable() const {
  std::vector<bool> is_kept(pool_.num_pages());
  for (const auto& [key, state] : states_) {
    if (state.last_run != num_runs_) continue;
    for (const PageId page : state.pages.page_ids()) is_kept[page.value] = true;
  }
  return std::ranges::count(is_kept, false);
}

bool DraftSequences::MakeRoom(int64_t num_pages) {
  if (pool_.num_free() >= num_pages) return true;
  if (NumPagesAvailable() < num_pages) return false;
  while (pool_.num_free() < num_pages) {
    const auto oldest = std::ranges::min_element(
        states_, {}, [](const auto& entry) { return entry.second.last_run; });
    CHECK(oldest->second.last_run != num_runs_) << "a sequence of this run";
    states_.erase(oldest);
  }
  return true;
}

}  // namespace espalier
