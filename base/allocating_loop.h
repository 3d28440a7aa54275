// AllocatingLoop: ThreadPool::ParallelFor for a body that may throw
// std::bad_alloc, which is rethrown to the caller of the loop.
#pragma once

#include <atomic>
#include <new>

#include "base/thread_pool.h"

namespace espalier {

template <typename Body>
void AllocatingLoop(ThreadPool& pool, int count, const Body& body) {
  std::atomic<bool> out_of_memory = false;
  pool.ParallelFor(count, [&](int i) {
    try {
      body(i);
    } catch (const std::bad_alloc&) {
      out_of_memory = true;
    }
  });
  if (out_of_memory) throw std::bad_alloc();
}

}  // namespace espalier
