// HeldMemory: bytes that the calls of a server hold together, by an estimate
// that each makes before it takes them, and those of the catalogues of items
// that calls have put.
//
//   ASSIGN_OR_RETURN(HeldMemory::Share share, memory.Take(num_bytes));
//
// Thread safety: all of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"

namespace espalier::serve {

class HeldMemory {
  using Count = std::atomic<int64_t>;

 public:
  // Bytes of one holder, until it is destroyed. May outlive the memory.
  class Share {
   public:
    Share() = default;
    Share(std::shared_ptr<Count> count, int64_t num_bytes)
        : count_(std::move(count)), num_bytes_(num_bytes) {}
    Share(Share&& other) noexcept
        : count_(std::move(other.count_)),
          num_bytes_(std::exchange(other.num_bytes_, 0)) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(count_, other.count_);
      std::swap(num_bytes_, other.num_bytes_);
      return *this;
    }
    ~Share() {
      if (num_bytes_ > 0) *count_ -= num_bytes_;
    }

    int64_t num_bytes() const { return num_bytes_; }
    // Takes over the bytes of another share of the same memory.
    void Merge(Share other) {
      if (count_ == nullptr) count_ = other.count_;
      num_bytes_ += std::exchange(other.num_bytes_, 0);
    }
    // Gives back the bytes above `num_bytes`, if there are any.
    void ShrinkTo(int64_t num_bytes) {
      if (num_bytes >= num_bytes_) return;
      *count_ -= num_bytes_ - num_bytes;
      num_bytes_ = num_bytes;
    }

   private:
    std::shared_ptr<Count> count_;
    int64_t num_bytes_ = 0;
  };

  explicit HeldMemory(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // Errors: kResourceExhausted naming the option, the limit and the figures:
  // permanent (base/status.h) if the limit is below `num_bytes`.
  absl::StatusOr<Share> Take(int64_t num_bytes);

  int64_t num_bytes() const { return *count_; }

 private:
  const int64_t max_bytes_;
  const std::shared_ptr<Count> count_ = std::make_shared<Count>(0);
};

}  // namespace espalier::serve
