// Replaces operator new of a whole program, and aligned_alloc, by which asio
// allocates its handlers and the frames of its coroutines, so that a test can
// make allocations fail. Exactly one source file of the program includes this,
// and defines OnAllocation().
//
//   void espalier::testing::OnAllocation() {
//     if (num_left > 0 && --num_left == 0) throw std::bad_alloc();
//   }
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace espalier::testing {

// Runs before every allocation that may throw, on the thread that allocates.
// The allocation fails if this throws std::bad_alloc; then, as the standard
// says, the new handler may find memory for the next attempt. Allocations that
// return null instead (std::nothrow, as std::stable_sort uses) never fail.
void OnAllocation();

// True if allocations of asio may fail. Tests clear it where two in a row would
// fail on a thread that runs coroutines, or one on the test's own context: asio
// allocates in a destructor as it unwinds a coroutine, which would end the
// program, and its exception leaves the context's run().
inline std::atomic<bool> asio_allocations_fail = true;

// True if the next allocation succeeds.
inline bool MayAllocate() {
  try {
    OnAllocation();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace espalier::testing

void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return std::malloc(size > 0 ? size : 1);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return std::malloc(size > 0 ? size : 1);
}
void* operator new(std::size_t size) {
  while (true) {
    void* const memory =
        espalier::testing::MayAllocate() ? operator new(size, std::nothrow)
                                         : nullptr;
    if (memory != nullptr) return memory;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}
void* operator new[](std::size_t size) { return operator new(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
extern "C" void* aligned_alloc(std::size_t alignment,
                               std::size_t size) noexcept {
  using espalier::testing::asio_allocations_fail;
  if (asio_allocations_fail && !espalier::testing::MayAllocate()) {
    return nullptr;
  }
  void* memory = nullptr;
  return posix_memalign(&memory, alignment, size) == 0 ? memory : nullptr;
}
