#include "pages/page_table.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/fault_injection.h"
#include "base/page_count.h"
#include "base/status.h"

namespace espalier {
namespace {

// Makes room for `size` values. Capacity grows geometrically, so values that
// are added one at a time cost O(1) each.
template <typename T>
void ReserveAtLeast(size_t size, std::vector<T>* values) {
  if (size > values->capacity()) {
    values->reserve(std::max(size, 2 * values->capacity()));
  }
}

}  // namespace

void PageTable::Reserve(size_t num_pages) {
  ReserveAtLeast(num_pages, &pages_);
  ReserveAtLeast(num_pages, &page_ids_);
}

void PageTable::PushPage(PageRef page) {
  page_ids_.push_back(page.id());
  pages_.push_back(std::move(page));
}

PageTable PageTable::Fork(int num_tokens) const {
  PageTable child(pool_);
  child.ForkFrom(*this, num_tokens);
  return child;
}

void PageTable::ForkFrom(const PageTable& parent, int num_tokens) {
  CHECK(num_tokens >= 0 && num_tokens <= parent.num_tokens_)
      << "fork of " << num_tokens << " tokens, there are "
      << parent.num_tokens_;
  const int64_t num_pages = NumPages(num_tokens, pool_->page_size());
  Reserve(num_pages);  // nothing throws after it
  const std::span<const PageId> all = parent.page_ids().first(num_pages);
  const int64_t num_common =
      std::ranges::mismatch(page_ids_, all).in2 - all.begin();
  pages_.erase(pages_.begin() + num_common, pages_.end());
  pages_.insert(pages_.end(), parent.pages_.begin() + num_common,
                parent.pages_.begin() + num_pages);
  page_ids_.resize(num_pages);
  std::copy(all.begin() + num_common, all.end(),
            page_ids_.begin() + num_common);
  num_tokens_ = num_tokens;
}

absl::Status PageTable::Append(int num_new_tokens,
                               std::vector<PageCopy>* copies) {
  CHECK_GE(num_new_tokens, 0) << "tokens to append";
  if (num_new_tokens == 0) return absl::OkStatus();
  const int num_left = room_in_tail();
  const bool copy_tail = num_left > 0 && pages_.back().shared();
  const int64_t num_new_pages =
      num_new_tokens > num_left
          ? NumPages(num_new_tokens - num_left, pool_->page_size())
          : 0;
  // All needed pages are counted first, so that the append is atomic.
  const int64_t num_needed = num_new_pages + (copy_tail ? 1 : 0);
  if (num_needed > pool_->num_available() ||
      FaultInjected(FaultPoint::kTakePages)) {
    return ResourceExhausted("need ", num_needed, " pages, ",
                             pool_->num_available(), " available");
  }
  const size_t num_pages = pages_.size() + num_new_pages;
  Reserve(num_pages);
  if (copy_tail) ReserveAtLeast(copies->size() + 1, copies);
  // Nothing throws from here on, since all memory is reserved. A cache
  // therefore never evicts a page for an append that fails.
  if (copy_tail) {
    PageRef fresh = *pool_->Allocate();
    const int num_tail_tokens = pool_->page_size() - num_left;
    copies->push_back({pages_.back().id(), fresh.id(), num_tail_tokens});
    page_ids_.back() = fresh.id();
    pages_.back() = std::move(fresh);
  }
  while (pages_.size() < num_pages) PushPage(*pool_->Allocate());
  num_tokens_ += num_new_tokens;
  return absl::OkStatus();
}

void PageTable::AdoptPages(std::vector<PageRef> pages) {
  CHECK_EQ(num_tokens_ % pool_->page_size(), 0) << "tokens in the tail";
  const int num_tokens = static_cast<int>(pages.size()) * pool_->page_size();
  Reserve(pages_.size() + pages.size());
  for (PageRef& page : pages) PushPage(std::move(page));
  num_tokens_ += num_tokens;
}

absl::Status PageTable::AppendCopy(const PageRef& from, int num_tokens,
                                   std::vector<PageCopy>* copies) {
  const int page_size = pool_->page_size();
  CHECK_EQ(num_tokens_ % page_size, 0) << "tokens in the tail";
  CHECK(num_tokens >= 1 && num_tokens < page_size)
      << num_tokens << " tokens to copy of a page of " << page_size;
  Reserve(pages_.size() + 1);
  ReserveAtLeast(copies->size() + 1, copies);
  const PageRef source = from;  // not for reclaiming now
  ASSIGN_OR_RETURN(PageRef fresh, pool_->Allocate());
  copies->push_back({source.id(), fresh.id(), num_tokens});
  PushPage(std::move(fresh));
  num_tokens_ += num_tokens;
  return absl::OkStatus();
}

PageRef PageTable::DetachTail() {
  const int num_tail_tokens = num_tokens_ % pool_->page_size();
  if (num_tail_tokens == 0) return PageRef();
  PageRef tail = std::move(pages_.back());
  pages_.pop_back();
  page_ids_.pop_back();
  num_tokens_ -= num_tail_tokens;
  return tail;
}

void PageTable::AttachTail(PageRef page, int num_tokens) {
  CHECK(page && !page.shared()) << "a tail has one holder";
  AdoptTail(std::move(page), num_tokens);
}

void PageTable::AdoptTail(PageRef page, int num_tokens) {
  const int page_size = pool_->page_size();
  CHECK_EQ(num_tokens_ % page_size, 0) << "tokens in the tail there is";
  CHECK(num_tokens >= 1 && num_tokens <= page_size)
      << num_tokens << " tokens in a page of " << page_size;
  CHECK(page) << "a page to go on with";
  Reserve(pages_.size() + 1);
  PushPage(std::move(page));
  num_tokens_ += num_tokens;
}

void PageTable::Truncate(int num_tokens) {
  CHECK(num_tokens >= 0 && num_tokens <= num_tokens_)
      << "truncation to " << num_tokens << " tokens, there are " << num_tokens_;
  const int64_t num_pages = NumPages(num_tokens, pool_->page_size());
  pages_.erase(pages_.begin() + num_pages, pages_.end());
  page_ids_.resize(num_pages);
  num_tokens_ = num_tokens;
}

}  // namespace espalier
