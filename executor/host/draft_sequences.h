// DraftSequences: what a draft model has fed of each sequence, its tokens and
// their pages, from one plan to the next.
//
//   sequences.BeginRun();
//   sequences.Begin(key, text);                 // keeps what text begins with
//   sequences.AddRow(key, text, text.size(), 1, &step);  // feeds the rest
//
// A sequence that was begun in this run keeps its pages. Where pages run out
// those that were begun least recently lose theirs, all of a sequence at once.
//
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>

#include "base/ids.h"
#include "exec_request/step_plan.h"
#include "executor/host/draft_text.h"
#include "pages/page_pool.h"
#include "pages/page_table.h"

namespace espalier {

class DraftSequences {
 public:
  // A sample of a request, or a beam of its search.
  using Key = std::pair<RequestId, int>;

  DraftSequences(int num_pages, int page_size) : pool_(num_pages, page_size) {}

  void BeginRun() { ++num_runs_; }

  // Keeps of the sequence what `text` begins with, but for its last token,
  // which is fed for its logits; nothing of one that is new.
  void Begin(const Key& key, const DraftText& text);
  // The same for all beams of a request's search, under keys (request, 0) and
  // following: each begins with the longest beginning that any of its sequences
  // has, and those are gone.
  void BeginBeams(RequestId request, std::span<const DraftText* const> texts);
  // A new sequence `to` that has what `from` has.
  void Fork(const Key& from, const Key& to);
  // `to` has the first `num_tokens` tokens of `from` now.
  void Share(const Key& from, const Key& to, size_t num_tokens);
  // The first `num_tokens` tokens of `text` are fed: pages behind them go.
  void SetFed(const Key& key, const DraftText& text, size_t num_tokens);
  // It may lose its pages to the others of this run.
  void GiveUp(const Key& key) { states_.at(key).last_run = num_runs_ - 1; }
  void Forget(RequestId request);

  // Tokens that it has fed.
  size_t num_fed(const Key& key) const { return states_.at(key).fed.size(); }

  // Adds a row that feeds text[num_fed(key), end) to `*step`, with pages for
  // `num_ahead` tokens more; false if there are no pages for it, and then
  // nothing is kept of the sequence.
  bool AddRow(const Key& key, const DraftText& text, size_t end, int num_logits,
              StepPlan* step, int num_ahead = 0);
  // Pages that this takes from the pool.
  int64_t NumPagesForRow(const Key& key, size_t end) const;
  // Sequences that were begun least recently lose theirs until so many are
  // free; false if they never are, and then none does.
  bool MakeRoom(int64_t num_pages);

  int size() const { return static_cast<int>(states_.size()); }
  const PagePool& pool() const { return pool_; }

 private:
  struct State {
    DraftText fed;
    PageTable pages;
    int64_t last_run = 0;
  };

  // Free pages, and those that no sequence of this run holds.
  int64_t NumPagesAvailable() const;

  PagePool pool_;
  std::map<Key, State> states_;
  int64_t num_runs_ = 0;
};

}  // namespace espalier
