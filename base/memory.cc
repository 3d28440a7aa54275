#include "base/memory.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace espalier {
namespace {

// Small blocks, released one at a time, so that other code can take little.
struct SpareMemory {
  static constexpr size_t kNumBlocks = 16;
  static constexpr size_t kBlockBytes = 8 << 10;

  std::mutex mutex;
  std::array<void*, kNumBlocks> blocks = {};
  std::atomic<size_t> num_blocks = 0;
};

constinit SpareMemory spare;

}  // namespace

void KeepSpareMemory() {
  if (spare.num_blocks == SpareMemory::kNumBlocks) return;
  const std::lock_guard<std::mutex> lock(spare.mutex);
  while (spare.num_blocks < SpareMemory::kNumBlocks) {
    void* const block = std::malloc(SpareMemory::kBlockBytes);
    if (block == nullptr) return;
    spare.blocks[spare.num_blocks++] = block;
  }
}

void AwaitMemory(int attempt) {
  constexpr int kMaxBlocksEach = 4;
  if (attempt > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (attempt >= kMaxBlocksEach) return;
  const std::lock_guard<std::mutex> lock(spare.mutex);
  if (spare.num_blocks > 0) std::free(spare.blocks[--spare.num_blocks]);
}

void ReturnFreeMemory() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

}  // namespace espalier
