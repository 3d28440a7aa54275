// DraftSequences: what a draft model has fed of each sequence, its tokens and
// their pages, from one plan to the next.
//
//   sequences.BeginRun();
//   sequences.Begin(key, text);                 // keeps what text begins with
//   sequences.AddRow(key, text, text.size(), 1, &step);  // feeds the rest
//
// A sequence that was begun in this run keeps its pages. Where pages run out
// those that were begun least recently lose theirs, all of a sequence at once.
// That costs as much as they have pages: the sequences are in the order in
// which they lose them, and the pages that none may lose are counted.
//
// A step's copies may run all at once (base/page_copy.h). So what they read
// stays as it is until the step was fed, whoever loses or gives up those pages.
//
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/page_copy.h"
#include "exec_request/step_plan.h"
#include "executor/host/draft_text.h"
#include "pages/page_pool.h"
#include "pages/page_table.h"

namespace espalier {

class DraftSequences {
 public:
  // A sample of a request, or a beam of its search.
  using Key = std::pair<RequestId, int>;

  DraftSequences(int num_pages, int page_size)
      : pool_(num_pages, page_size),
        in_use_(num_pages),
        is_copied_(num_pages) {}

  void BeginRun();

  // Keeps of the sequence what `text` begins with, but for its last token,
  // which is fed for its logits; nothing of one that is new.
  void Begin(const Key& key, const DraftText& text);
  // The same for all beams of a request's search, under keys (request, 0) and
  // following: each begins with the longest beginning that any of its sequences
  // has, and those are gone.
  void BeginBeams(RequestId request, std::span<const DraftText* const> texts);
  // Keeps all that the sequence has fed, if it is there, and its pages.
  void Keep(const Key& key);
  // A new sequence `to` that has what `from` has.
  void Fork(const Key& from, const Key& to);
  // `to` has the first `num_tokens` tokens of `from` now.
  void Share(const Key& from, const Key& to, size_t num_tokens);
  // The first `num_tokens` tokens of `text` are fed, also where others were:
  // pages after them go.
  void SetFed(const Key& key, const DraftText& text, size_t num_tokens);
  // It may lose its pages to the others of this run.
  void GiveUp(const Key& key);
  void Forget(RequestId request);

  bool Has(const Key& key) const { return states_.contains(key); }
  // Tokens that it has fed.
  size_t num_fed(const Key& key) const { return states_.at(key).fed.size(); }

  // Adds a row that feeds text[num_fed(key), end) to `*step`, with pages for
  // `num_ahead` tokens more; false if there are no pages for it, and then
  // nothing is kept of the sequence. One step is written at a time: where
  // `*step` has no copies those before it were fed.
  bool AddRow(const Key& key, const DraftText& text, size_t end, int num_logits,
              StepPlan* step, int num_ahead = 0);
  // Adds a row of one token, which is not known, at position `first`, after
  // what is known to be right of what the sequence has fed; with pages for
  // `num_tokens` from there on. Of what was fed nothing is forgotten: that row
  // may begin further on. False as AddRow, and of a sequence that is not there.
  bool AddRowAfter(const Key& key, size_t first, int num_tokens,
                   StepPlan* step);
  // Pages that this takes from the pool.
  int64_t NumPagesForRow(const Key& key, size_t end) const;
  // Sequences that were begun least recently lose theirs until so many are
  // free for rows of `step`; false if they never are, and then none does.
  bool MakeRoom(int64_t num_pages, const StepPlan& step);

  int size() const { return static_cast<int>(states_.size()); }
  const PagePool& pool() const { return pool_; }

 private:
  struct State {
    DraftText fed;
    PageTable pages;
    int64_t last_run = 0;
  };
  using Entry = std::map<Key, State>::iterator;

  // Pages that nobody may lose in this run, each counted by who has it.
  class PagesInUse {
   public:
    explicit PagesInUse(int num_pages) : num_users_(num_pages) {}
    void Add(std::span<const PageId> pages);
    void Remove(std::span<const PageId> pages);
    void Clear();
    int num_pages() const { return num_pages_; }

   private:
    std::vector<int> num_users_;  // [pages of the pool]
    int num_pages_ = 0;           // that have some
  };

  // In place of what `key` has.
  void Put(const Key& key, State state);
  std::pair<Entry, Entry> OfRequest(RequestId request);
  void Erase(Entry begin, Entry end);
  void SetRun(Entry entry, int64_t run);
  // Calls change(state), which may take pages and give them up.
  template <typename Change>
  void Update(const Key& key, const Change& change);
  // Its pages go, but for what copies of the step read.
  void ReleasePages(State* state);
  // What these of the step read stays until the next step.
  void KeepCopied(std::span<const PageCopy> copies);
  void ForgetCopies();

  PagePool pool_;
  std::map<Key, State> states_;
  std::set<std::pair<int64_t, Key>> by_run_;  // last_run and key of each
  PagesInUse in_use_;  // by sequences of this run and by copies
  int64_t num_runs_ = 0;
  std::vector<PageId> copied_;   // that the step's copies read
  std::vector<bool> is_copied_;  // [pages of the pool]
  std::vector<PageRef> kept_;    // of these, what sequences have no more
};

}  // namespace espalier
