// Allocations that must succeed. Code that reports a failure, or releases what
// is held, cannot report a failure of its own. Where it needs a few hundred
// bytes, it takes them from spare memory that is kept for that, and where none
// is left waits until they are free: who waits may hold what others wait for.
#pragma once

#include <new>

namespace espalier {

// Takes spare memory for the process as far as it lacks any: some 100 KB. Costs
// nothing while all of it is there. Does not throw.
//
// Thread safety: any thread; so are the others.
void KeepSpareMemory();

// Gives a block of the spare memory back, 8 KB, at the first `attempt`, 0, at
// once, at a few more of them after a millisecond; at later ones waits alone:
// who wants more than that must not take it from those who want little.
void AwaitMemory(int attempt);

// Gives free memory of the process back to the system, where its allocator
// keeps any: after something large, once, as it takes milliseconds.
void ReturnFreeMemory();

// Calls `body` until it throws no std::bad_alloc. `body` does nothing when it
// throws, or can be called again after what it did.
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

}  // namespace espalier
