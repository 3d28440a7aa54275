// CudaCacheEngine: an executor's only access to the key/value pages of a model
// on one device: tail copies, and pages swapped to host memory and back (vLLM's
// CacheEngine). One for each model. The model owns the pages (CudaKvCache), and
// its forward pass reads and writes them. On the host, kv_layer.h does this.
//
// All work is enqueued on `steps`, the stream of the steps. Stream order
// ensures that a page is copied or saved before a later kernel writes it, and
// copied to or loaded before a later kernel reads it.
//
// Pages of preempted groups are kept in pinned host memory, one slot per page:
//
//   save   steps' stream   gather ──> staging
//          own stream                         ──> pinned slots
//   load   own stream      pinned slots ──> staging
//          steps' stream                            ──> scatter
//
// The steps' stream runs only the part in device memory. Copies over the link
// have a stream of their own. A save does not delay a step unless it exceeds
// the staging memory. A load begins when its plan arrives and overlaps with the
// running step; only its own step waits for it. Staging buffers form a ring, so
// that the link and the kernels overlap: a step that swaps no more pages than
// the ring holds waits for no copy of its own.
//
// All copies over the link are in stream order, so a released slot may be saved
// to while the load from it is still queued.
//
// Thread safety: one thread at a time, whose current device is that of the
// pages.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "base/cuda.h"
#include "base/cuda_memory.h"
#include "base/cuda_pinned_memory.h"
#include "base/page_copy.h"
#include "kernels/kv_cache/cuda_kv_cache.h"
#include "kernels/kv_cache/cuda_swap_pages.h"

namespace espalier {

class CudaCacheEngine {
 public:
  // The pages, and the tokens that are kept beside them, if any. Both are
  // memory of `device` and outlive the engine. Allocates nothing.
  CudaCacheEngine(const CudaKvCache& cache, const CudaPageTokens& tokens,
                  const CudaDevice& device);
  // Waits for all copies over the link.
  ~CudaCacheEngine();
  CudaCacheEngine(const CudaCacheEngine&) = delete;
  CudaCacheEngine& operator=(const CudaCacheEngine&) = delete;

  // Enqueues tail copies that the device lists, of keys, values and tokens in
  // all layers, as CudaCopyTails. May be captured in a graph.
  //   copies      [max_copies]  device
  //   num_copies  [1]           device, at most max_copies
  // Errors: as CudaCopyTails.
  absl::Status CopyPages(const PageCopy* copies, const int* num_copies,
                         int max_copies, cudaStream_t steps) const;

  // Allocates the device memory that the following CopyPages needs.
  // Errors: kResourceExhausted.
  absl::Status ReserveCopyList();
  // Makes tail copies that the host lists, and waits for them. After an error
  // some may have been made.
  // REQUIRES: ReserveCopyList() has succeeded.
  // Errors: as CudaCopyTails; as base/cuda.h.
  absl::Status CopyPages(std::span<const PageCopy> copies, cudaStream_t steps);

  // Allocates as many slots as fit `host_bytes`, and measures the link. After
  // an error there are no slots, and a smaller size may be tried.
  // REQUIRES: there are no slots.
  // Errors: kInvalidArgument if no slot fits; kResourceExhausted; as
  // base/cuda.h.
  absl::Status AddHostSlots(int64_t host_bytes);
  int num_host_slots() const { return num_slots_; }
  // Bytes per page on the link.
  int64_t page_bytes() const { return record_bytes_; }
  // Measured bytes per second from pinned memory to the device; 0 without
  // slots.
  double host_bandwidth() const { return host_bandwidth_; }

  // Enqueues all saves, then all loads. Does not wait, and allocates host
  // memory only: if it throws std::bad_alloc, nothing has been enqueued.
  // Errors: kInvalidArgument if a slot or page does not exist, and nothing is
  // enqueued; as base/cuda.h.
  absl::Status SwapPages(std::span<const PageSave> saves,
                         std::span<const PageLoad> loads, cudaStream_t steps);

  // Memory that the engine has allocated, by purpose; parts may be empty.
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

  absl::Status Allocate(int64_t host_bytes);
  absl::Status MeasureLink();
  void ReleaseHostSlots();
  absl::Status Check(PageId page, HostSlotId slot) const;
  Staging& NextStaging() { return staging_[next_staging_++ % kNumStaging]; }
  absl::Status Save(const Batch& batch, cudaStream_t steps);
  absl::Status Load(const Batch& batch, cudaStream_t steps);
  // Enqueues copies between the slots of `batch` and staging, one for each run
  // of consecutive slots.
  absl::Status CopyRecords(const Batch& batch, const Staging& staging,
                           cudaMemcpyKind kind);

  const CudaKvCache cache_;
  const CudaPageTokens tokens_;
  const CudaDevice device_;
  const int64_t record_bytes_;

  DeviceBuffer<PageCopy> copies_;  // or empty
  DeviceBuffer<int> num_copies_;

  // Constant after AddHostSlots.
  int num_slots_ = 0;
  int batch_size_ = 0;
  double host_bandwidth_ = 0;
  PinnedBuffer<std::byte> slots_;  // [num_slots_] records
  std::array<Staging, kNumStaging> staging_;
  CudaStream link_;

  unsigned next_staging_ = 0;
};

}  // namespace espalier
