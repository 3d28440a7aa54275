// RowRanges: a first-fit allocator for contiguous rows of an array.
//
// Thread safety: any thread.
#pragma once

#include <iterator>
#include <map>
#include <mutex>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "base/check.h"

namespace espalier {

class RowRanges {
 public:
  explicit RowRanges(int num_rows) : num_free_(num_rows) {
    if (num_rows > 0) free_[0] = num_rows;
  }

  int num_free() const {
    const std::lock_guard lock(mutex_);
    return num_free_;
  }

  // Takes `count` contiguous free rows and returns the first; nullopt if there
  // is no such range.
  std::optional<int> Take(int count) {
    const std::lock_guard lock(mutex_);
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      const auto [first, end] = *it;
      if (end - first < count) continue;
      free_.erase(it);
      if (first + count < end) free_[first + count] = end;
      num_free_ -= count;
      return first;
    }
    return std::nullopt;
  }

  // REQUIRES: Take() returned exactly these rows.
  void GiveBack(int first, int count) {
    const std::lock_guard lock(mutex_);
    int end = first + count;
    auto next = free_.lower_bound(first);
    CHECK(next == free_.end() || next->first >= end) << "rows that are free";
    if (next != free_.end() && next->first == end) {
      end = next->second;
      next = free_.erase(next);
    }
    num_free_ += count;
    if (next != free_.begin() && std::prev(next)->second == first) {
      std::prev(next)->second = end;
    } else {
      free_[first] = end;
    }
  }

 private:
  mutable std::mutex mutex_;
  // First row -> end; ranges do not touch.
  std::map<int, int> free_ ABSL_GUARDED_BY(mutex_);
  int num_free_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace espalier
