// Allocations that must succeed. Code that reports a failure, or releases
// resources, cannot fail itself. If such code lacks a few hundred bytes, spare
// memory is released for it; if none is left, it waits until memory is free. A
// reserve is needed because waiting code may hold memory that others wait for.
#pragma once

#include <new>

namespace espalier {

// Refills the spare memory of the process, some 100 KB. Costs nothing while it
// is full. Does not throw.
//
// Thread safety: all functions may be called on any thread.
void KeepSpareMemory();

// Releases an 8 KB block of the spare memory: immediately at `attempt` 0, after
// a millisecond at the next few. Later attempts only wait, so that a large
// allocation does not use up the reserve of small ones.
void AwaitMemory(int attempt);

// Returns free memory in the process's allocator to the system. Takes
// milliseconds; meant for one call after a large operation.
void ReturnFreeMemory();

// Calls `body` until it does not throw std::bad_alloc.
// REQUIRES: `body` can be called again after it has thrown.
template <typename Body>
auto UntilThereIsMemory(const Body& body) {
  for (int attempt = 0;; ++attempt) {
    try {
      return body();
    } catch (const std::bad_alloc&) {
      AwaitMemory(attempt);
    }
  }
}

// Calls `body`, whose work may be left out: it ends at a std::bad_alloc.
template <typename Body>
void IfThereIsMemory(const Body& body) {
  try {
    body();
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace espalier
