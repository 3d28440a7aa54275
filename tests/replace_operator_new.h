// Replaces operator new of a whole program, so that a test can make allocations
// fail. Exactly one source file of the program includes this, and defines
// OnAllocation().
//
//   void espalier::testing::OnAllocation() {
//     if (num_left > 0 && --num_left == 0) throw std::bad_alloc();
//   }
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace espalier::testing {

// Runs before every allocation that may throw, on the thread that allocates.
// The allocation fails if this throws std::bad_alloc. Allocations that return
// null instead (std::nothrow, as std::stable_sort uses) never fail.
void OnAllocation();

}  // namespace espalier::testing

void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return std::malloc(size > 0 ? size : 1);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return std::malloc(size > 0 ? size : 1);
}
void* operator new(std::size_t size) {
  espalier::testing::OnAllocation();
  void* const memory = operator new(size, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
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
