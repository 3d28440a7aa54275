// MemoryReserve: memory for calls of a library that cannot handle allocation
// failures. During its lifetime, operator new on its thread does not fail: if
// memory runs out, a block of the reserve is freed and the allocation retried.
// If another thread takes that block first, the next block is freed. Without
// blocks, the thread waits.
//
//   std::vector<int> ids;
//   {
//     const MemoryReserve reserve(kBytesPerText);  // throws std::bad_alloc
//     library.Encode(text, &ids);
//   }
//
// Cost: `num_bytes` of untouched heap memory and eight allocations, freed by
// the destructor. Freed blocks are not allocated again: a reserve serves eight
// failing allocations. Later ones wait for memory that other threads free, in
// steps of a millisecond, ten seconds in total. Each call of the library should
// therefore have a reserve of its own.
//
// The first reserve installs a new handler (std::set_new_handler), which
// delegates to the previous handler on other threads. If the program replaces
// the handler later, a reserve only proves that there was memory.
//
// Thread safety: it belongs to its thread. Reserves may nest.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace espalier {

class MemoryReserve {
 public:
  // Allocates `num_bytes` in eight blocks. This should be several times what
  // the library needs, because it gets one block at a time, and other threads
  // may take some. Throws std::bad_alloc if memory runs out.
  explicit MemoryReserve(size_t num_bytes);
  ~MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

 private:
  static void OnNoMemory();
  // Frees a block, or waits if none is left. Finally throws std::bad_alloc.
  void Help();

  static thread_local MemoryReserve* current_;

  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  int num_waits_ = 0;
  MemoryReserve* const outer_;
};

}  // namespace espalier
