#include "pages/page_pool.h"

#include "base/check.h"
#include "base/status.h"

namespace espalier {

PageReservation::PageReservation(PageReservation&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      num_pages_(std::exchange(other.num_pages_, 0)) {}

PageReservation& PageReservation::operator=(PageReservation&& other) noexcept {
  PageReservation taken(std::move(other));
  std::swap(pool_, taken.pool_);
  std::swap(num_pages_, taken.num_pages_);
  return *this;
}

PageReservation::~PageReservation() {
  if (pool_ != nullptr) pool_->num_reserved_ -= num_pages_;
}

PagePool::PagePool(int num_pages, int page_size) : page_size_(page_size) {
  CHECK_GE(num_pages, 0) << "pages";
  CHECK_GE(page_size, 1) << "tokens a page";
  ref_counts_.resize(num_pages);
  free_.reserve(num_pages);  // so that Release never allocates
  for (int id = num_pages - 1; id >= 0; --id) free_.push_back(PageId{id});
}

PagePool::~PagePool() {
  CHECK_EQ(num_held(), 0) << "pages outlive their pool";
  CHECK_EQ(num_reserved_, 0) << "reserved pages outlive their pool";
}

absl::StatusOr<PageRef> PagePool::Allocate() {
  if (free_.empty()) {
    return ResourceExhausted("need 1 page, 0 of ", num_pages(), " free");
  }
  const PageId page = free_.back();
  free_.pop_back();
  ref_counts_[page.value] = 1;
  return PageRef(this, page);
}

absl::StatusOr<PageReservation> PagePool::Reserve(int64_t num_pages) {
  CHECK_GE(num_pages, 0) << "pages to reserve";
  const int64_t num_unpromised = this->num_pages() - num_reserved_;
  if (num_pages > num_unpromised) {
    return ResourceExhausted("need ", num_pages, " pages, ", num_unpromised,
                             " of ", this->num_pages(), " not yet promised");
  }
  num_reserved_ += num_pages;
  return PageReservation(this, num_pages);
}

}  // namespace espalier
