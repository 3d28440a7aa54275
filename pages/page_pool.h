// PagePool: the owner of all physical pages, as numbers. A page is a run of
// `page_size` key/value slots (counted in tokens) for all layers; where its
// bytes live is the model's business. The pool hands out page ids, counts who
// holds each, and takes a page back when the last holder lets go.
//
// Counts are plain integers: a pool, and every PageRef, PageTable and
// PageReservation of it, belongs to one strand. The pool outlives them all.
//
// Two promises are kept apart:
//   held      a page some PageRef retains now;
//   reserved  capacity promised to a group for its worst case, held or not.
// A group allocates only within its reservation, so an admitted group never
// finds the pool empty.
//
//   ASSIGN_OR_RETURN(PageReservation promised, pool.Reserve(12));
//   ASSIGN_OR_RETURN(PageRef page, pool.Allocate());
//   PageRef twin = page;  // retained twice, released by the destructors
#pragma once

#include <cassert>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"

namespace espalier {

class PagePool;

// One holder of a page: copying retains, destruction releases, moving does
// neither. A default or moved-from PageRef holds nothing.
class PageRef {
 public:
  PageRef() = default;
  PageRef(const PageRef& other);
  PageRef(PageRef&& other) noexcept;
  PageRef& operator=(PageRef other) noexcept;
  ~PageRef();

  explicit operator bool() const { return pool_ != nullptr; }
  // REQUIRES: holds a page.
  PageId id() const;
  // Whether another PageRef holds this page too. REQUIRES: holds a page.
  bool shared() const;
  // The pool of the page held, or null.
  PagePool* pool() const { return pool_; }

 private:
  friend class PagePool;
  PageRef(PagePool* pool, PageId id) : pool_(pool), id_(id) {}

  PagePool* pool_ = nullptr;
  PageId id_;
};

// Capacity promised to one group; given back when this dies. Move-only.
class PageReservation {
 public:
  PageReservation() = default;
  PageReservation(PageReservation&& other) noexcept;
  PageReservation& operator=(PageReservation&& other) noexcept;
  ~PageReservation();

  int64_t num_pages() const { return num_pages_; }

 private:
  friend class PagePool;
  PageReservation(PagePool* pool, int64_t num_pages)
      : pool_(pool), num_pages_(num_pages) {}

  PagePool* pool_ = nullptr;
  int64_t num_pages_ = 0;
};

class PagePool {
 public:
  // REQUIRES: num_pages >= 0, page_size >= 1.
  PagePool(int num_pages, int page_size);
  // REQUIRES: no page is held and nothing is reserved.
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // A free page, its one holder the result. Which free page is unspecified
  // but deterministic.
  // Errors: kResourceExhausted, leaving the pool unchanged, if none is free.
  absl::StatusOr<PageRef> Allocate();

  // Promises `num_pages` pages.
  // Errors: kResourceExhausted, leaving the pool unchanged, if fewer are not
  // yet promised; the message gives both figures.
  absl::StatusOr<PageReservation> Reserve(int64_t num_pages);

  int num_pages() const { return static_cast<int>(ref_counts_.size()); }
  int page_size() const { return page_size_; }
  int num_free() const { return static_cast<int>(free_.size()); }
  int num_held() const { return num_pages() - num_free(); }
  int64_t num_reserved() const { return num_reserved_; }
  // How many PageRefs hold `page`; 0 if it is free.
  int ref_count(PageId page) const { return ref_counts_[page.value]; }

 private:
  friend class PageRef;
  friend class PageReservation;
  void Retain(PageId page);
  void Release(PageId page);

  const int page_size_;
  std::vector<int> ref_counts_;  // [num_pages]
  std::vector<PageId> free_;     // a stack
  int64_t num_reserved_ = 0;
};

inline void PagePool::Retain(PageId page) { ++ref_counts_[page.value]; }

inline void PagePool::Release(PageId page) {
  assert(ref_counts_[page.value] > 0 && "released twice");
  if (--ref_counts_[page.value] == 0) free_.push_back(page);
}

inline PageRef::PageRef(const PageRef& other)
    : pool_(other.pool_), id_(other.id_) {
  if (pool_ != nullptr) pool_->Retain(id_);
}

inline PageRef::PageRef(PageRef&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), id_(other.id_) {}

inline PageRef& PageRef::operator=(PageRef other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(id_, other.id_);
  return *this;
}

inline PageRef::~PageRef() {
  if (pool_ != nullptr) pool_->Release(id_);
}

inline PageId PageRef::id() const {
  assert(pool_ != nullptr && "no page is held");
  return id_;
}

inline bool PageRef::shared() const { return pool_->ref_count(id()) > 1; }

}  // namespace espalier
