// A message that memory runs out for is not cut in silence.
//
// A program of its own, because it replaces operator new.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>

#include "base/status.h"

namespace {

// The allocation that fails, counted from 1; 0: none does.
int64_t failing_allocation = 0;

void* Allocate(std::size_t size) {
  if (failing_allocation > 0 && --failing_allocation == 0) {
    throw std::bad_alloc();
  }
  void* const memory = std::malloc(size > 0 ? size : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return Allocate(size); }
void* operator new[](std::size_t size) { return Allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace espalier {
namespace {

TEST(StatusOutOfMemoryTest, AMessageIsWholeOrNotMade) {
  const std::string context(3000, 'c');
  const std::string whole = context + ": need 7 pages, true " + context;
  int num_failed = 0;
  while (true) {
    std::string message;
    failing_allocation = num_failed + 1;
    try {
      message = Concat(context, ": need ", 7, " pages, ", true, ' ', context);
    } catch (const std::bad_alloc&) {
      ++num_failed;
      continue;
    }
    const bool all_succeeded = failing_allocation > 0;
    failing_allocation = 0;
    EXPECT_EQ(message, whole) << "allocation " << num_failed + 1 << " failed";
    if (all_succeeded || message != whole) break;
    ++num_failed;  // the message did without
  }
  EXPECT_GT(num_failed, 1);
}

}  // namespace
}  // namespace espalier
