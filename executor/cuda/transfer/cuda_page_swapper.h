// CudaPageSwapper: pages of preempted groups in pinned host memory, a slot a
// page, and their way there and back beside running steps.
//
//   save   steps' stream   gather ──> staging
//          own stream                         ──> pinned slots
//   load   own stream      pinned slots ──> staging
//          steps' stream                            ──> scatter
//
// The steps' stream does the part in device memory alone, in its order: so a
// page is saved before a later kernel writes it, and loaded before a later
// kernel reads it. What goes over the link is on a stream of its own. A save
// holds no step up, unless there is more of it than staging has room for. A
// load begins when its plan is there, beside the step that runs; the step that
// it is for waits. Pieces of staging memory are used in turn, so that the link
// and the kernels work at the same time: a step that swaps as many pages as all
// of them hold waits for no copy of its own.
//
// All copies over the link are in order, so a slot that was given back may be
// saved to while the load from it is on its way.
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
  // As many slots as `host_bytes` holds. Measures the link.
  // Errors: kInvalidArgument if it holds none; kResourceExhausted.
  static absl::StatusOr<std::unique_ptr<CudaPageSwapper>> Create(
      const CudaKvCache& cache, const CudaPageTokens& tokens,
      int64_t host_bytes, const CudaDevice& device);
  // Waits for what is on its way.
  ~CudaPageSwapper();
  CudaPageSwapper(const CudaPageSwapper&) = delete;
  CudaPageSwapper& operator=(const CudaPageSwapper&) = delete;

  int num_slots() const { return num_slots_; }
  // Of what goes over the link.
  int64_t page_bytes() const { return record_bytes_; }
  // Bytes a second from pinned memory to the device.
  double host_bandwidth() const { return host_bandwidth_; }

  // Enqueues all saves, then all loads, before what comes next on `steps`.
  // Waits for nothing, and takes memory on the host alone: throws
  // std::bad_alloc, and nothing is enqueued then.
  // Errors: kInvalidArgument if a slot or page is not there, and nothing is
  // enqueued; as base/cuda.h.
  absl::Status Enqueue(std::span<const PageSave> saves,
                       std::span<const PageLoad> loads, cudaStream_t steps);

  // What it holds.
  CudaMemoryParts memory() const;

 private:
  static constexpr int kNumStaging = 4;

  struct Staging {
    DeviceBuffer<std::byte> records;  // [batch_size_] of them
    CudaEvent used;                   // by the steps' stream, the last time
    CudaEvent copied;                 // over the link, the last time
  };
  // Pages of one call of a kernel, with their slots.
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
  // Between the slots of `batch` and staging, as few copies as there are runs
  // of slots.
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
