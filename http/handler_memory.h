// HandlerMemory: the memory of an asio operation that is awaited repeatedly, so
// that awaiting it never fails for lack of memory.
//
//   const auto memory = std::make_shared<HandlerMemory>();
//   acceptor.async_wait(Acceptor::wait_read,
//                       asio::bind_allocator(HandlerAllocator<char>(memory),
//                                            [](error_code error) { ... }));
//
// The operation owns the memory, so it may outlive its initiator.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "base/check.h"

namespace espalier::http {

// Thread safety: that of its operation.
class HandlerMemory {
 public:
  HandlerMemory() = default;
  HandlerMemory(const HandlerMemory&) = delete;
  HandlerMemory& operator=(const HandlerMemory&) = delete;

  // REQUIRES: nothing is taken, `size` is at most kSize.
  void* Take(size_t size) {
    CHECK(!is_taken_ && size <= kSize) << "an operation of " << size;
    is_taken_ = true;
    return bytes_;
  }
  void GiveBack() { is_taken_ = false; }

 private:
  static constexpr size_t kSize = 512;

  bool is_taken_ = false;
  alignas(std::max_align_t) std::byte bytes_[kSize];
};

// Allocates from a HandlerMemory.
template <typename T>
class HandlerAllocator {
 public:
  using value_type = T;

  explicit HandlerAllocator(std::shared_ptr<HandlerMemory> memory)
      : memory_(std::move(memory)) {}
  template <typename U>
  HandlerAllocator(const HandlerAllocator<U>& other) noexcept
      : memory_(other.memory()) {}

  T* allocate(size_t count) {
    return static_cast<T*>(memory_->Take(count * sizeof(T)));
  }
  void deallocate(T* /*bytes*/, size_t /*count*/) { memory_->GiveBack(); }

  const std::shared_ptr<HandlerMemory>& memory() const { return memory_; }
  template <typename U>
  bool operator==(const HandlerAllocator<U>& other) const {
    return memory_ == other.memory();
  }

 private:
  std::shared_ptr<HandlerMemory> memory_;
};

}  // namespace espalier::http
