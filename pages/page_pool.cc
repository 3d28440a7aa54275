#include "pages/page_pool.h"

#include "base/check.h"
#include "base/status.h"

namespace espalier {

PagePool::PagePool(int num_pages, int page_size) : page_size_(page_size) {
  CHECK_GE(num_pages, 0) << "pages";
  CHECK_GE(page_size, 1) << "tokens a page";
  ref_counts_.resize(num_pages);
  is_cached_.resize(num_pages);
  free_.reserve(num_pages);  // so that Release never allocates
  for (int id = num_pages - 1; id >= 0; --id) free_.push_back(PageId{id});
}

PagePool::~PagePool() { CHECK_EQ(num_held(), 0) << "pages outlive their pool"; }

absl::StatusOr<PageRef> PagePool::Allocate() {
  if (free_.empty() && (reclaimer_ == nullptr || !reclaimer_->ReclaimPage())) {
    return ResourceExhausted("need 1 page, 0 of ", num_pages(), " free");
  }
  const PageId page = free_.back();
  free_.pop_back();
  ref_counts_[page.value] = 1;
  return PageRef(this, page);
}

void PagePool::SetCached(PageId page, bool is_cached) {
  CHECK_GE(ref_count(page), 1) << "holders of page " << page;
  CHECK(this->is_cached(page) != is_cached) << "page " << page;
  is_cached_[page.value] = is_cached;
  if (ref_count(page) == 1) num_idle_ += is_cached ? 1 : -1;
}

}  // namespace espalier
