// PageTable: a sequence's pages in order, and its length in tokens. Token t of
// the sequence lives in slot t % page_size of page t / page_size.
//
// Forking shares every page. Only the last, partly filled page is ever copied,
// and only when a sequence is about to write into it while another holds it:
// the first writer that finds it shared gets a copy, the last holder writes in
// place. Copies are not made here; they are reported, and the next step makes
// them before it writes.
//
//   PageTable child = parent.Fork(parent.num_tokens());
//   RETURN_IF_ERROR(child.Append(1, &copies));  // copies: parent's tail
//   RETURN_IF_ERROR(parent.Append(1, &copies));  // in place
//
// Truncating drops tokens from the end (a rollback), and never touches a page:
// one that only the dropped tokens needed is released, and the one that becomes
// the tail is copied by the next append if another table holds it.
//
//   child.Truncate(5);                           // page 1, if pages are of 4
//   RETURN_IF_ERROR(child.Append(1, &copies));   // copies 1 token if shared
//
// Sequences that are planned before their parents are decided (docs/step.md,
// "Running ahead") keep a tail of their own instead: it is detached from the
// table, and attached again when the table has the parent's full pages.
//
//   PageRef tail = child.DetachTail();              // child: full pages alone
//   child = parent.Fork(parent.num_tokens());       // so has the parent
//   child.AttachTail(std::move(tail), num_tokens);  // not shared, ever
//
// A table belongs to its pool's strand.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/page_copy.h"
#include "pages/page_pool.h"

namespace espalier {

class PageTable {
 public:
  // An empty table. `pool` outlives it.
  explicit PageTable(PagePool* pool) : pool_(pool) {}
  PageTable(PageTable&&) = default;
  PageTable& operator=(PageTable&&) = default;
  PageTable(const PageTable&) = delete;  // copying is called Fork
  PageTable& operator=(const PageTable&) = delete;

  // A table of the first `num_tokens` tokens, sharing their pages.
  // REQUIRES: 0 <= num_tokens <= this->num_tokens().
  PageTable Fork(int num_tokens) const;

  // Becomes Fork(num_tokens) of `parent`, in the memory that it has, whatever
  // it held. Pages that both begin with stay as they are: of a beam that is
  // pruned for a child of another these are all but the last ones. Throws
  // std::bad_alloc, and has done nothing then.
  // REQUIRES: 0 <= num_tokens <= parent.num_tokens().
  void ForkFrom(const PageTable& parent, int num_tokens);

  // Grows the table by `num_new_tokens` writable slots: allocates pages, and
  // replaces a shared, partly filled tail by a fresh page, appending the copy
  // to make to `*copies`. Afterwards every page that holds a new slot has this
  // table as its only holder.
  // Errors: kResourceExhausted, leaving table, pool and `*copies` unchanged; so
  // they are if it throws std::bad_alloc.
  // REQUIRES: num_new_tokens >= 0.
  absl::Status Append(int num_new_tokens, std::vector<PageCopy>* copies);
  // Append(1) where that takes no page: the tail has room and one holder. False
  // otherwise, and nothing is done.
  bool AppendInPlace() {
    if (room_in_tail() == 0 || pool_->ref_count(page_ids_.back()) > 1) {
      return false;
    }
    ++num_tokens_;
    return true;
  }

  // Grows the table, whose pages are all full, by full pages of another holder,
  // such as a cache. They are never written again.
  void AdoptPages(std::vector<PageRef> pages);

  // Grows the table, whose pages are all full, by a fresh page that begins with
  // the first `num_tokens` tokens of `from`; appends the copy to make to
  // `*copies`. `from` must not be allocated again before that is in a plan.
  // Errors: kResourceExhausted, leaving table, pool and `*copies` unchanged.
  // REQUIRES: num_tokens() % page_size == 0, 1 <= num_tokens < page_size.
  absl::Status AppendCopy(const PageRef& from, int num_tokens,
                          std::vector<PageCopy>* copies);

  // Keeps the first `num_tokens` tokens and releases the pages after them.
  // Other tables that hold these pages keep them as they are.
  // A page released may be allocated again at once. So the copies that Append
  // has reported must be in a plan already, and plans run in order.
  // REQUIRES: 0 <= num_tokens <= this->num_tokens().
  void Truncate(int num_tokens);

  // Takes out the last page if it is not full, with its tokens; the result
  // holds nothing if all pages are full.
  PageRef DetachTail();

  // Grows the table, whose pages are all full, by `page` with `num_tokens`
  // tokens in it. The caller sees to it that they are written.
  // REQUIRES: num_tokens() % page_size == 0, `page` is held and not shared,
  // 1 <= num_tokens <= page_size.
  void AttachTail(PageRef page, int num_tokens);

  // The same by a page that others may hold: the next append copies its tokens
  // if they do.
  // REQUIRES: num_tokens() % page_size == 0, `page` is held,
  // 1 <= num_tokens <= page_size.
  void AdoptTail(PageRef page, int num_tokens);

  // Truncate(0).
  void Clear() { Truncate(0); }

  int num_tokens() const { return num_tokens_; }
  // Tokens that its last page has room for.
  int room_in_tail() const {
    return static_cast<int>(page_ids_.size()) * pool_->page_size() -
           num_tokens_;
  }
  std::span<const PageRef> pages() const { return pages_; }
  // The same pages, as plans name them.
  std::span<const PageId> page_ids() const { return page_ids_; }

 private:
  friend class PageTablePeer;  // plants faults for the validator's tests

  // For so many pages in all.
  void Reserve(size_t num_pages);
  // REQUIRES: there is room for it.
  void PushPage(PageRef page);

  // What a step of one token reads comes first.
  PagePool* pool_;
  int num_tokens_ = 0;
  std::vector<PageId> page_ids_;  // of pages_
  std::vector<PageRef> pages_;    // [ceil(num_tokens_ / page_size)]
};

// Pages a table of `num_tokens` tokens has: ceil(num_tokens / page_size).
constexpr int64_t NumPages(int64_t num_tokens, int page_size) {
  return (num_tokens + page_size - 1) / page_size;
}

// The most pages that `num_beams` tables of at most `num_tokens` tokens each
// hold together when all share the first `num_shared_tokens`: the full pages
// of the shared part once, the rest once a beam.
constexpr int64_t WorstCasePages(int64_t num_shared_tokens, int64_t num_tokens,
                                 int64_t num_beams, int page_size) {
  const int64_t num_shared = num_shared_tokens / page_size;
  return num_shared +
         num_beams * (NumPages(num_tokens, page_size) - num_shared);
}

}  // namespace espalier
