// DraftSequences: the KV cache of a draft model across plans: for each sequence
// the tokens that the model has fed, and their pages.
//
//   sequences.BeginRun();
//   sequences.Begin(key, text);                 // keeps the common prefix
//   sequences.AddRow(key, text, text.size(), 1, &step);  // feeds the rest
//
// Sequences that were begun in this run keep their pages. If pages run out,
// other sequences are evicted whole, least recently begun first. Eviction costs
// O(pages released): sequences are kept in this order, and pages in use are
// counted.
//
// A step's copies may run all at once (base/page_copy.h). Pages that they read
// therefore stay allocated until the step was fed, even if their sequence is
// evicted or given up.
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
#include "executor/drafts/draft_text.h"
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

  // Begins the sequence: truncates it to its common prefix with `text`, without
  // the last token of `text`, which is fed again for its logits.
  void Begin(const Key& key, const DraftText& text);
  // Begins all beams of a request's search, under keys (request, 0), (request,
  // 1) and so on. Each starts from the longest prefix that any sequence of the
  // request has; these sequences are dropped.
  void BeginBeams(RequestId request, std::span<const DraftText* const> texts);
  // Begins the sequence, if it exists, with everything that it has fed.
  void Keep(const Key& key);
  // Adds a sequence `to` with the tokens and pages of `from`.
  void Fork(const Key& from, const Key& to);
  // Replaces `to` by the first `num_tokens` tokens of `from`.
  void Share(const Key& from, const Key& to, size_t num_tokens);
  // Sets the fed tokens to the first `num_tokens` tokens of `text`, even if
  // others were fed; releases the pages after them.
  void SetFed(const Key& key, const DraftText& text, size_t num_tokens);
  // Lets other sequences of this run evict this one.
  void GiveUp(const Key& key);
  void Forget(RequestId request);

  bool Has(const Key& key) const { return states_.contains(key); }
  // Number of tokens fed.
  size_t num_fed(const Key& key) const { return states_.at(key).fed.size(); }

  // Adds a row to `*step` that feeds text[num_fed(key), end), with pages for
  // `num_ahead` more tokens. Returns false, and drops the sequence, if there
  // are no pages for it. REQUIRES: one step is written at a time; when `*step`
  // has no copies, earlier steps were fed.
  bool AddRow(const Key& key, const DraftText& text, size_t end, int num_logits,
              StepPlan* step, int num_ahead = 0);
  // Adds a row of one unknown token at position `first`, after the tokens that
  // are known to be accepted, with pages for `num_tokens` from there on. No fed
  // tokens are dropped, because the device may start the row later. Returns
  // false as AddRow(), and if the sequence does not exist.
  bool AddRowAfter(const Key& key, size_t first, int num_tokens,
                   StepPlan* step);
  // Returns the number of pages that AddRow() would take from the pool.
  int64_t NumPagesForRow(const Key& key, size_t end) const;
  // Evicts the least recently begun sequences until `num_pages` pages are free
  // for rows of `step`. Returns false, and evicts none, if that is impossible.
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

  // Pages that cannot be evicted in this run, with a user count each.
  class PagesInUse {
   public:
    explicit PagesInUse(int num_pages) : num_users_(num_pages) {}
    void Add(std::span<const PageId> pages);
    void Remove(std::span<const PageId> pages);
    void Clear();
    int num_pages() const { return num_pages_; }

   private:
    std::vector<int> num_users_;  // [pages of the pool]
    int num_pages_ = 0;           // with at least one user
  };

  // Replaces the state of `key`.
  void Put(const Key& key, State state);
  std::pair<Entry, Entry> OfRequest(RequestId request);
  void Erase(Entry begin, Entry end);
  void SetRun(Entry entry, int64_t run);
  // Calls change(state), which may retain and release pages.
  template <typename Change>
  void Update(const Key& key, const Change& change);
  // Releases the state's pages, except those that copies of the step read.
  void ReleasePages(State* state);
  // Keeps the pages that `copies` read until the next step.
  void KeepCopied(std::span<const PageCopy> copies);
  void ForgetCopies();

  PagePool pool_;
  std::map<Key, State> states_;
  std::set<std::pair<int64_t, Key>> by_run_;  // last_run and key of each
  PagesInUse in_use_;  // by sequences of this run and by copies
  int64_t num_runs_ = 0;
  std::vector<PageId> copied_;   // read by the step's copies
  std::vector<bool> is_copied_;  // [pages of the pool]
  std::vector<PageRef> kept_;    // pages of copied_ without a sequence
};

}  // namespace espalier
