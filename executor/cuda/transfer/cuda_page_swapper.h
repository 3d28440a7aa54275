// CudaPageSwapper: keeps pages of preempted groups in pinned host memory, one
// slot per page, and copies them there and back while steps run.
//
//   save   steps' stream   gather ──> staging
//          own stream                         ──> pinned slots
//   load   own stream      pinned slots ──> staging
//          steps' stream                            ──> scatter
//
// The steps' stream runs only the part in device memory. Stream order ensures
// that a page is saved before a later kernel writes it and loaded before a
// later kernel reads it. Copies over the link have a stream of their own. A
// save does not delay a step unless it exceeds the staging memory. A load
// begins when its plan arrives and overlaps with the running step; only its own
// step waits for it. Staging buffers form a ring, so that the link and the
// kernels overlap: a step that swaps no more pages than the ring holds waits
// for no copy of its own.
//
// All copies over the link are in stream order, so a released slot may be saved
// to while the load from it is still queued.
//
// Thread safety: one thread, on the device of its memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "base/cuda.h"
#include "base/cuda_memory.h"
#include "base/page_copy.h"
#include "kernels/kv_cache/cuda_swap_pages.h"

namespace espalier {

class CudaPageSwapper {
 public:
  // Allocates as many slots as fit `host_bytes`, and measures the link.
  // Errors: kInvalidArgument if no slot fits; kResourceExhausted.
  static absl::StatusOr<std::unique_ptr<CudaPageSwapper>> Create(
      const CudaKvCache& cache, const CudaPageTokens& tokens,
      int64_t host_bytes, const CudaDevice& device);
  // Waits for all copies.
  ~CudaPageSwapper();
  CudaPageSwapper(const CudaPageSwapper&) = delete;
  CudaPageSwapper& operator=(const CudaPageSwapper&) = delete;

  int num_slots() const { return num_slots_; }
  // Bytes per page on the link.
  int64_t page_bytes() const { return record_bytes_; }
  // Measured bytes per second from pinned memory to the device.
  double host_bandwidth() const { return host_bandwidth_; }

  // Enqueues all saves, then all loads, before later work on `steps`. It does
  // not wait, and allocates host memory only: if it throws std::bad_alloc,
  // nothing has been enqueued.
  // Errors: kInvalidArgument if a slot or page does not exist, and nothing is
  // enqueued; as base/cuda.h.
  absl::Status Enqueue(std::span<const PageSave> saves,
                       std::span<const PageLoad> loads, cudaStream_t steps);

  CudaMemoryParts memory() const;

 private:
  static constexpr int kNumStaging = 4;

  struct Staging {
    DeviceBuffer<std::byte> records;  // [batch_size_, record_bytes_]
    CudaEvent used;                   // last use by the steps' stream
    CudaEvent copied;                 // last copy over the link
  };
  // Pages of one kernel launch, with their slots.
  struct Batch {
    CudaPageList list;
    std::array<int, CudaPageList::kMaxPages> slots;
  };

  CudaPageSwapper(const CudaKvCache& cache, const CudaPageTokens& tokens,
                  const CudaDevice& device)
      : cache_(cache), tokens_(tokens), device_(device) {}

  absl::Status Allocate(int64_t host_bytes);
  absl::Status MeasureLink();
  absl::Status Check(PageId page, HostSlotId slot) const;
  Staging& NextStaging() { return staging_[next_staging_++ % kNumStaging]; }
  absl::Status Save(const Batch& batch, cudaStream_t steps);
  absl::Status Load(const Batch& batch, cudaStream_t steps);
  // Enqueues copies between the slots of `batch` and staging, one for each run
  // of consecutive slots.
  absl::Status CopyRecords(const Batch& batch, const Staging& staging,
                           cudaMemcpyKind kind);

  // Constant after construction.
  const CudaKvCache cache_;
  const CudaPageTokens tokens_;
  const CudaDevice device_;
  int64_t record_bytes_ = 0;
  int num_slots_ = 0;
  int batch_size_ = 0;
  double host_bandwidth_ = 0;
  PinnedBuffer<std::byte> slots_;  // [num_slots_] records
  std::array<Staging, kNumStaging> staging_;
  CudaStream link_;

  unsigned next_staging_ = 0;
};

}  // namespace espalier
