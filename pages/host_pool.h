// HostPool: allocator for slots of host memory, by number. A slot holds the
// data of one page; the executor owns the memory. A preempted group keeps pages
// there (beam/pages/saved_pages.h). Several of its sequences may hold one slot,
// as they held one page.
//
// Thread safety: a pool and all its HostSlots belong to one strand, since
// counts are plain integers. The pool outlives its slots.
//
//   HostSlot slot = pool.Take();
//   if (slot) ...  // a slot was free
#pragma once

#include <cassert>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace espalier {

class HostPool;

// One holder of a slot: copying retains, destruction releases, moving does
// neither. A default or moved-from HostSlot holds nothing.
class HostSlot {
 public:
  HostSlot() = default;
  HostSlot(const HostSlot& other);
  HostSlot(HostSlot&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), id_(other.id_) {}
  HostSlot& operator=(HostSlot other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(id_, other.id_);
    return *this;
  }
  ~HostSlot();

  explicit operator bool() const { return pool_ != nullptr; }
  // REQUIRES: holds a slot.
  HostSlotId id() const {
    assert(pool_ != nullptr && "no slot is held");
    return id_;
  }
  // Returns the pool of the slot held, or null.
  HostPool* pool() const { return pool_; }

 private:
  friend class HostPool;
  HostSlot(HostPool* pool, HostSlotId id) : pool_(pool), id_(id) {}

  HostPool* pool_ = nullptr;
  HostSlotId id_;
};

class HostPool {
 public:
  // REQUIRES: num_slots >= 0.
  explicit HostPool(int num_slots);
  // REQUIRES: no slot is held.
  ~HostPool();
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;

  // Allocates a slot, held by the result alone; the result holds nothing if
  // none is free. The choice of slot is unspecified but deterministic.
  HostSlot Take();

  int num_slots() const { return static_cast<int>(ref_counts_.size()); }
  int num_free() const { return static_cast<int>(free_.size()); }
  int num_held() const { return num_slots() - num_free(); }
  // Returns the number of HostSlots that hold `slot`; 0 if it is free.
  int ref_count(HostSlotId slot) const { return ref_counts_[slot.value]; }

 private:
  friend class HostSlot;
  void Retain(HostSlotId slot) { ++ref_counts_[slot.value]; }
  void Release(HostSlotId slot) {
    assert(ref_counts_[slot.value] > 0 && "released twice");
    if (--ref_counts_[slot.value] == 0) free_.push_back(slot);
  }

  std::vector<int> ref_counts_;   // [num_slots]
  std::vector<HostSlotId> free_;  // a stack
};

inline HostSlot::HostSlot(const HostSlot& other)
    : pool_(other.pool_), id_(other.id_) {
  if (pool_ != nullptr) pool_->Retain(id_);
}

inline HostSlot::~HostSlot() {
  if (pool_ != nullptr) pool_->Release(id_);
}

}  // namespace espalier
