// PageTable: a sequence's pages in order, and its length in tokens. Token t of
// the sequence lives in slot t % page_size of page t / page_size.
//
// Forking shares every page. Only the last, partly filled page is ever copied,
// and only when a sequence appends to it while another table holds it. Each
// writer that finds it shared gets a copy; the last holder writes in place. The
// table only reports copies; the next step makes them before it writes.
//
//   PageTable child = parent.Fork(parent.num_tokens());
//   RETURN_IF_ERROR(child.Append(1, &copies));  // copies: parent's tail
//   RETURN_IF_ERROR(parent.Append(1, &copies));  // in place
//
// Truncating drops tokens from the end (a rollback), and never writes to a
// page. Pages without remaining tokens are released. The next append copies the
// new tail if another table holds it.
//
//   child.Truncate(5);                           // page 1, if pages are of 4
//   RETURN_IF_ERROR(child.Append(1, &copies));   // copies 1 token if shared
//
// Sequences that are scheduled asynchronously, before their parents are known
// (docs/step.md, "Running ahead"), have a private tail instead. It is detached
// from the table, and attached again after the parent's full pages.
//
//   PageRef tail = child.DetachTail();              // child: full pages only
//   child = parent.Fork(parent.num_tokens());       // parent: full pages only
//   child.AttachTail(std::move(tail), num_tokens);  // never shared
//
// Thread safety: a table belongs to its pool's strand.
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
  // Creates an empty table.
  // REQUIRES: `pool` outlives it.
  explicit PageTable(PagePool* pool) : pool_(pool) {}
  PageTable(PageTable&&) = default;
  PageTable& operator=(PageTable&&) = default;
  PageTable(const PageTable&) = delete;  // copying is called Fork
  PageTable& operator=(const PageTable&) = delete;

  // Returns a table of the first `num_tokens` tokens that shares their pages.
  // REQUIRES: 0 <= num_tokens <= this->num_tokens().
  PageTable Fork(int num_tokens) const;

  // Replaces this table by parent.Fork(num_tokens), in its own memory. The
  // common page prefix is not touched; when a pruned beam makes way for another
  // beam's child, that is all but the last pages. If it throws std::bad_alloc,
  // the table is unchanged.
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
  // Does Append(1) if that needs no page, because the tail has room and a
  // single holder. Otherwise returns false and changes nothing.
  bool AppendInPlace() {
    if (room_in_tail() == 0 || pool_->ref_count(page_ids_.back()) > 1) {
      return false;
    }
    ++num_tokens_;
    return true;
  }

  // Appends full pages of another holder, such as a cache. They are never
  // written again.
  // REQUIRES: all pages of the table are full.
  void AdoptPages(std::vector<PageRef> pages);

  // Appends a new page that begins with the first `num_tokens` tokens of
  // `from`; adds the copy to make to `*copies`. `from` must not be allocated
  // again before that copy is in a plan.
  // Errors: kResourceExhausted, leaving table, pool and `*copies` unchanged.
  // REQUIRES: num_tokens() % page_size == 0, 1 <= num_tokens < page_size.
  absl::Status AppendCopy(const PageRef& from, int num_tokens,
                          std::vector<PageCopy>* copies);

  // Keeps the first `num_tokens` tokens and releases the pages after them.
  // Other holders of these pages are not affected. A released page may be
  // allocated again at once. Copies that Append() has reported must therefore
  // be in a plan already; plans run in order.
  // REQUIRES: 0 <= num_tokens <= this->num_tokens().
  void Truncate(int num_tokens);

  // Removes and returns the last page, with its tokens, if it is not full. The
  // result holds nothing if all pages are full.
  PageRef DetachTail();

  // Appends `page` with `num_tokens` tokens. The caller must have them written.
  // REQUIRES: num_tokens() % page_size == 0, `page` is held and not shared,
  // 1 <= num_tokens <= page_size.
  void AttachTail(PageRef page, int num_tokens);

  // Appends `page` with `num_tokens` tokens, which may be shared: the next
  // append then copies its tokens.
  // REQUIRES: num_tokens() % page_size == 0, `page` is held,
  // 1 <= num_tokens <= page_size.
  void AdoptTail(PageRef page, int num_tokens);

  void Clear() { Truncate(0); }

  int num_tokens() const { return num_tokens_; }
  // Free token slots in the last page.
  int room_in_tail() const {
    return static_cast<int>(page_ids_.size()) * pool_->page_size() -
           num_tokens_;
  }
  std::span<const PageRef> pages() const { return pages_; }
  // The ids of pages(), for plans.
  std::span<const PageId> page_ids() const { return page_ids_; }

 private:
  friend class PageTablePeer;  // plants faults for the validator's tests

  // Reserves memory for `num_pages` pages in total.
  void Reserve(size_t num_pages);
  // REQUIRES: Reserve() covers it.
  void PushPage(PageRef page);

  // Members that a decode step reads come first.
  PagePool* pool_;
  int num_tokens_ = 0;
  std::vector<PageId> page_ids_;  // [pages_]
  std::vector<PageRef> pages_;    // [ceil(num_tokens_ / page_size)]
};

}  // namespace espalier
