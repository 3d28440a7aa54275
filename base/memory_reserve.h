// MemoryReserve: memory for a library that breaks where an allocation fails.
// While one lives, operator new of its thread does not fail: where there is no
// memory it gets back a block of the reserve. The others are still there if
// another thread takes that one before it; and when all are gone it waits.
//
//   std::vector<int> ids;
//   {
//     const MemoryReserve reserve(kBytesPerText);  // throws std::bad_alloc
//     library.Encode(text, &ids);
//   }
//
// Cost: `num_bytes` of heap while it lives, which nothing writes to or reads,
// and eight allocations; the destructor frees what is left of them. A block
// that was given back is not taken again: of one reserve eight allocations that
// fail find memory, and those after them wait, a millisecond at a time, ten
// seconds in all, for memory that other threads free. So a reserve lives as
// long as one call of the library, and each call has its own.
//
// It does so by the new handler of the program (std::set_new_handler), which
// the first reserve sets and which leaves other threads to the handler that was
// there before. If the program sets another one later, a reserve only shows
// that there was memory.
//
// Thread safety: of its thread alone. Reserves may nest.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace espalier {

class MemoryReserve {
 public:
  // Takes `num_bytes` in blocks of an eighth. They are several times what the
  // library needs: it gets back a block at a time, and another thread may take
  // one before it. Throws std::bad_alloc if they are not there.
  explicit MemoryReserve(size_t num_bytes);
  ~MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

 private:
  static void OnNoMemory();
  // Gives a block back, or waits. Throws std::bad_alloc in the end.
  void Help();

  static thread_local MemoryReserve* current_;

  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  int num_waits_ = 0;
  MemoryReserve* const outer_;
};

}  // namespace espalier
