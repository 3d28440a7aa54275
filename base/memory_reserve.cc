#include "base/memory_reserve.h"

#include <chrono>
#include <new>
#include <thread>

namespace espalier {
namespace {

constexpr int kNumBlocks = 8;

// All threads that hold memory may wait for more of it.
constexpr int kMaxWaits = 10'000;
constexpr std::chrono::milliseconds kWait(1);

// The handler that there was before `handler`, which is set at the first call.
std::new_handler SetOnce(std::new_handler handler) {
  static const std::new_handler previous = std::set_new_handler(handler);
  return previous;
}

}  // namespace

thread_local MemoryReserve* MemoryReserve::current_ = nullptr;

MemoryReserve::MemoryReserve(size_t num_bytes) : outer_(current_) {
  SetOnce(&OnNoMemory);
  blocks_.reserve(kNumBlocks);
  for (int i = 0; i < kNumBlocks; ++i) {
    blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(
        num_bytes / kNumBlocks + 1));
  }
  current_ = this;
}

MemoryReserve::~MemoryReserve() { current_ = outer_; }

void MemoryReserve::OnNoMemory() {
  if (current_ != nullptr) return current_->Help();
  const std::new_handler previous = SetOnce(&OnNoMemory);
  if (previous == nullptr) throw std::bad_alloc();
  previous();
}

void MemoryReserve::Help() {
  if (!blocks_.empty()) return blocks_.pop_back();
  if (++num_waits_ > kMaxWaits) throw std::bad_alloc();
  std::this_thread::sleep_for(kWait);
}

}  // namespace espalier
