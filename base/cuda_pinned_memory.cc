#include "base/cuda_pinned_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/cpu_count.h"
#include "base/cuda.h"

namespace espalier::cuda_internal {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
// Smaller memory takes a few milliseconds either way.
constexpr size_t kMinRegisteredBytes = 32 * kHugePage;
// The system clears about 10 GB/s a thread.
constexpr int kMaxTouchThreads = 8;

// Returns the number after `key` in a system file, or its first word if `key`
// is empty; nullopt if that is no number, like the limit "max".
std::optional<size_t> ReadNumber(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    if (!key.empty() && word != key) continue;
    size_t number = 0;
    if (!key.empty()) {
      if (file >> number) return number;
      return std::nullopt;
    }
    const char* const end = word.data() + word.size();
    const auto read = std::from_chars(word.data(), end, number);
    if (read.ec == std::errc() && read.ptr == end) return number;
    return std::nullopt;
  }
  return std::nullopt;
}

// True if the system and the memory limit of our cgroup (v2) have `bytes` free.
// Touching more memory would get the process killed, where cudaHostAlloc
// returns an error.
bool MayTouch(size_t bytes) {
  const auto available = ReadNumber("/proc/meminfo", "MemAvailable:");
  if (available.has_value() && *available < bytes / 1024) return false;
  const auto limit = ReadNumber("/sys/fs/cgroup/memory.max", "");
  const auto used = ReadNumber("/sys/fs/cgroup/memory.current", "");
  if (!limit.has_value() || !used.has_value()) return true;
  return *used <= *limit && *limit - *used >= bytes;
}

size_t RoundUp(size_t bytes) {
  return (bytes + kHugePage - 1) / kHugePage * kHugePage;
}

// Touches every page, so that the system allocates and clears it.
void TouchPages(std::byte* memory, size_t bytes) {
  const auto touch = [memory](size_t begin, size_t end) {
    // A small page each: the system may have no huge ones.
    constexpr size_t kPage = 4096;
    for (size_t i = begin; i < end; i += kPage) {
      const_cast<volatile std::byte&>(memory[i]) = std::byte{0};
    }
  };
  const size_t num_pages = bytes / kHugePage;
  const size_t num_threads = std::min(NumUsableCpus(), kMaxTouchThreads);
  const auto begin_of = [&](size_t part) {
    return num_pages * part / num_threads * kHugePage;
  };
  std::vector<std::thread> threads;
  size_t part = 1;  // the first is this thread's
  try {
    threads.reserve(num_threads);
    for (; part < num_threads; ++part) {
      threads.emplace_back(touch, begin_of(part), begin_of(part + 1));
    }
  } catch (const std::exception&) {
    touch(begin_of(part), bytes);  // there are no more threads
  }
  touch(0, begin_of(1));
  for (std::thread& thread : threads) thread.join();
}

// Returns null if the system or the device does not support this.
PinnedMemory RegisterPages(size_t bytes) {
  const size_t size = RoundUp(bytes);
  if (!MayTouch(size)) return nullptr;
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  madvise(memory, size, MADV_HUGEPAGE);  // small pages do as well
  // Copy-on-write in a forked child would move pages that the device uses.
  madvise(memory, size, MADV_DONTFORK);
  TouchPages(static_cast<std::byte*>(memory), size);
  if (cudaHostRegister(memory, size, cudaHostRegisterMapped) != cudaSuccess) {
    cudaGetLastError();
    munmap(memory, size);
    return nullptr;
  }
  PinnedMemory pinned(memory, FreePinned{size});
  void* on_device = nullptr;
  const cudaError_t error = cudaHostGetDevicePointer(&on_device, memory, 0);
  if (error == cudaSuccess && on_device == memory) return pinned;
  cudaGetLastError();
  return nullptr;
}

}  // namespace

void FreePinned::operator()(void* memory) const {
  if (registered_bytes == 0) {
    cudaFreeHost(memory);
    return;
  }
  cudaHostUnregister(memory);
  munmap(memory, registered_bytes);
}

absl::StatusOr<PinnedMemory> AllocatePinned(size_t bytes) {
  if (bytes >= kMinRegisteredBytes) {
    if (PinnedMemory pinned = RegisterPages(bytes)) return pinned;
  }
  void* memory = nullptr;
  const cudaError_t error = cudaHostAlloc(&memory, bytes, cudaHostAllocMapped);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return ResourceExhausted("not enough pinned host memory for ", bytes,
                             " bytes");
  }
  RETURN_IF_ERROR(CudaStatus(error, "cudaHostAlloc"));
  std::fill_n(static_cast<std::byte*>(memory), bytes, std::byte{0});
  return PinnedMemory(memory);
}

}  // namespace espalier::cuda_internal
