// Allocations that must succeed. Code that reports a failure, or releases what
// is held, cannot report a failure of its own. Where it needs a few hundred
// bytes, it waits until they are free.
#pragma once

#include <chrono>
#include <new>
#include <thread>

namespace espalier {

// Calls `body` until it throws no std::bad_alloc. `body` does nothing when it
// throws, or can be called again after what it did.
template <typename Body>
auto UntilThereIsMemory(const Body& body) {
  while (true) {
    try {
      return body();
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

}  // namespace espalier
