// PagePool: the owner of all physical pages, by number. A page is a run of
// `page_size` key/value slots (counted in tokens) for all layers; the model
// owns the memory. The pool allocates page ids, counts the holders of each, and
// frees a page when its last holder releases it.
//
// Thread safety: a pool and all its PageRefs and PageTables belong to one
// strand, since counts are plain integers. The pool outlives them all.
//
// A page is *free* or *held*. A held page is *idle* if only a cache holds it
// (prefix_tree.h). Allocate() reclaims idle pages when none is free.
//
//   ASSIGN_OR_RETURN(PageRef page, pool.Allocate());
//   PageRef copy = page;  // retained twice, released by the destructors
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
  // True if another PageRef holds this page too.
  // REQUIRES: holds a page.
  bool shared() const;
  // Returns the pool of the page held, or null.
  PagePool* pool() const { return pool_; }

 private:
  friend class PagePool;
  PageRef(PagePool* pool, PageId id) : pool_(pool), id_(id) {}

  PagePool* pool_ = nullptr;
  PageId id_;
};

// A cache: it holds pages and can release them on demand.
class PageReclaimer {
 public:
  virtual ~PageReclaimer() = default;
  // Releases a page that has no other holder; false if there is none. Does not
  // throw.
  virtual bool ReclaimPage() = 0;
};

class PagePool {
 public:
  // REQUIRES: num_pages >= 0, page_size >= 1.
  PagePool(int num_pages, int page_size);
  // REQUIRES: no page is held.
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // Allocates a free page, held by the result alone; if none is free, a page
  // that the reclaimer releases. The choice is unspecified but deterministic.
  // Errors: kResourceExhausted, leaving the pool unchanged, if none is
  // available.
  absl::StatusOr<PageRef> Allocate();

  int num_pages() const { return static_cast<int>(ref_counts_.size()); }
  int page_size() const { return page_size_; }
  int num_free() const { return static_cast<int>(free_.size()); }
  int num_held() const { return num_pages() - num_free(); }
  // Pages that only a cache holds.
  int num_idle() const { return num_idle_; }
  // Pages with a holder other than a cache.
  int num_in_use() const { return num_held() - num_idle_; }
  // Pages that Allocate() can return.
  int num_available() const { return num_free() + num_idle_; }
  // Returns the number of PageRefs that hold `page`; 0 if it is free.
  int ref_count(PageId page) const { return ref_counts_[page.value]; }

  // Sets the only reclaimer, or removes it if null. Allocate() calls it.
  void set_reclaimer(PageReclaimer* reclaimer) { reclaimer_ = reclaimer; }
  // Marks whether one of the page's holders is the reclaimer's cache. The page
  // is idle if that is its last holder. Only the reclaimer calls this.
  // REQUIRES: the page is held, and the mark changes.
  void SetCached(PageId page, bool is_cached);
  bool is_cached(PageId page) const { return is_cached_[page.value] != 0; }

 private:
  friend class PageRef;
  void Retain(PageId page);
  void Release(PageId page);

  const int page_size_;
  std::vector<int> ref_counts_;     // [num_pages]
  std::vector<PageId> free_;        // a stack
  std::vector<uint8_t> is_cached_;  // [num_pages]
  int num_idle_ = 0;                // cached, with one holder
  PageReclaimer* reclaimer_ = nullptr;
};

inline void PagePool::Retain(PageId page) {
  if (++ref_counts_[page.value] == 2) num_idle_ -= is_cached_[page.value];
}

inline void PagePool::Release(PageId page) {
  assert(ref_counts_[page.value] > 0 && "released twice");
  const int ref_count = --ref_counts_[page.value];
  if (ref_count == 0) free_.push_back(page);
  if (ref_count == 1) num_idle_ += is_cached_[page.value];
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
