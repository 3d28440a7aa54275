// HeldMemory: bytes that the calls of a server hold together, by an estimate
// that each makes before it takes them.
//
//   ASSIGN_OR_RETURN(HeldMemory::Share share, memory.Take(num_bytes));
//
// Thread safety: all of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"

namespace espalier::serve {

class HeldMemory {
 public:
  // Bytes of one call, until it is destroyed.
  class Share {
   public:
    Share() = default;
    Share(HeldMemory* memory, int64_t num_bytes)
        : memory_(memory), num_bytes_(num_bytes) {}
    Share(Share&& other) noexcept
        : memory_(other.memory_),
          num_bytes_(std::exchange(other.num_bytes_, 0)) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(memory_, other.memory_);
      std::swap(num_bytes_, other.num_bytes_);
      return *this;
    }
    ~Share() {
      if (num_bytes_ > 0) memory_->num_bytes_ -= num_bytes_;
    }

   private:
    HeldMemory* memory_ = nullptr;
    int64_t num_bytes_ = 0;
  };

  // Outlives its shares.
  explicit HeldMemory(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // Errors: kResourceExhausted naming the option, the limit and the figures:
  // permanent (base/status.h) if the limit is below `num_bytes`.
  absl::StatusOr<Share> Take(int64_t num_bytes);

  int64_t num_bytes() const { return num_bytes_; }

 private:
  const int64_t max_bytes_;
  std::atomic<int64_t> num_bytes_ = 0;
};

}  // namespace espalier::serve
