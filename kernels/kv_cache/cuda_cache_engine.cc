#include "kernels/kv_cache/cuda_cache_engine.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/check.h"
#include "base/field_error.h"
#include "base/status.h"
#include "kernels/kv_cache/cuda_copy_tails.h"

namespace espalier {
namespace {

// Minimum size of a staging buffer: a copy of 16 MiB reaches the bandwidth of
// the link.
constexpr int64_t kStagingBytes = int64_t{16} << 20;
constexpr int kMeasurements = 3;
constexpr int kMaxCopiesAtOnce = 1024;

absl::StatusOr<CudaEvent> MakeOrderEvent() {
  cudaEvent_t event = nullptr;
  RETURN_IF_CUDA_ERROR(
      cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return CudaEvent(event);
}

}  // namespace

CudaCacheEngine::CudaCacheEngine(const CudaKvCache& cache,
                                 const CudaPageTokens& tokens,
                                 const CudaDevice& device)
    : cache_(cache),
      tokens_(tokens),
      device_(device),
      record_bytes_(CudaPageRecordBytes(cache, tokens)) {}

CudaCacheEngine::~CudaCacheEngine() { ReleaseHostSlots(); }

absl::Status CudaCacheEngine::CopyPages(const PageCopy* copies,
                                        const int* num_copies, int max_copies,
                                        cudaStream_t steps) const {
  return CudaCopyTails(copies, num_copies, max_copies, cache_, tokens_, device_,
                       steps);
}

absl::Status CudaCacheEngine::ReserveCopyList() {
  ASSIGN_OR_RETURN(copies_,
                   TakeDeviceMemory<PageCopy>("tail copies", kMaxCopiesAtOnce));
  ASSIGN_OR_RETURN(num_copies_, TakeDeviceMemory<int>("tail copies", 1));
  return absl::OkStatus();
}

absl::Status CudaCacheEngine::CopyPages(std::span<const PageCopy> copies,
                                        cudaStream_t steps) {
  while (!copies.empty()) {
    const int count =
        static_cast<int>(std::min<size_t>(copies.size(), kMaxCopiesAtOnce));
    RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(copies_.data(), copies.data(),
                                         count * sizeof(PageCopy),
                                         cudaMemcpyDefault, steps));
    RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(
        num_copies_.data(), &count, sizeof(count), cudaMemcpyDefault, steps));
    RETURN_IF_ERROR(
        CopyPages(copies_.data(), num_copies_.data(), count, steps));
    RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(steps));
    copies = copies.subspan(count);
  }
  return absl::OkStatus();
}

absl::Status CudaCacheEngine::AddHostSlots(int64_t host_bytes) {
  CHECK_EQ(num_slots_, 0) << "host slots are there already";
  absl::Status status = Allocate(host_bytes);
  if (status.ok()) status = MeasureLink();
  if (!status.ok()) ReleaseHostSlots();
  return status;
}

void CudaCacheEngine::ReleaseHostSlots() {
  if (link_) cudaStreamSynchronize(link_.get());
  num_slots_ = 0;
  link_ = {};
  staging_ = {};
  slots_ = {};
}

absl::Status CudaCacheEngine::Allocate(int64_t host_bytes) {
  num_slots_ = static_cast<int>(std::min<int64_t>(
      host_bytes / record_bytes_, std::numeric_limits<int32_t>::max()));
  if (num_slots_ < 1) {
    return MakeFieldError(absl::StatusCode::kInvalidArgument,
                          OptionName{"host_cache_bytes"},
                          " must hold a page of ", MemorySize{record_bytes_},
                          " (", OptionName{"page_size"}, " ", cache_.page_size,
                          "), got ", MemoryValue{host_bytes});
  }
  batch_size_ = static_cast<int>(
      std::min({(kStagingBytes + record_bytes_ - 1) / record_bytes_,
                int64_t{num_slots_}, int64_t{CudaPageList::kMaxPages}}));
  auto slots = PinnedBuffer<std::byte>::Create(num_slots_ * record_bytes_);
  if (!slots.ok()) {
    return MakeFieldError(absl::StatusCode::kResourceExhausted,
                          OptionName{"host_cache_bytes"}, ": no ",
                          MemorySize{host_bytes},
                          " of pinned memory: ", Message(slots.status()));
  }
  slots_ = *std::move(slots);
  ASSIGN_OR_RETURN(link_, CudaStream::Create());
  for (Staging& staging : staging_) {
    ASSIGN_OR_RETURN(staging.records,
                     TakeDeviceMemory<std::byte>("swapping pages",
                                                 batch_size_ * record_bytes_));
    ASSIGN_OR_RETURN(staging.used, MakeOrderEvent());
    ASSIGN_OR_RETURN(staging.copied, MakeOrderEvent());
  }
  return absl::OkStatus();
}

absl::Status CudaCacheEngine::MeasureLink() {
  const size_t num_bytes = staging_[0].records.size_bytes();
  ASSIGN_OR_RETURN(const CudaEvent begin, CudaEvent::Create());
  ASSIGN_OR_RETURN(const CudaEvent end, CudaEvent::Create());
  float best_ms = std::numeric_limits<float>::max();
  for (int i = 0; i < kMeasurements; ++i) {
    RETURN_IF_CUDA_ERROR(cudaEventRecord(begin.get(), link_.get()));
    RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(staging_[0].records.data(),
                                         slots_.data(), num_bytes,
                                         cudaMemcpyHostToDevice, link_.get()));
    RETURN_IF_CUDA_ERROR(cudaEventRecord(end.get(), link_.get()));
    RETURN_IF_CUDA_ERROR(cudaEventSynchronize(end.get()));
    float ms = 0;
    RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&ms, begin.get(), end.get()));
    best_ms = std::min(best_ms, ms);
  }
  if (best_ms > 0) host_bandwidth_ = num_bytes / (best_ms * 1e-3);
  return absl::OkStatus();
}

absl::Status CudaCacheEngine::Check(PageId page, HostSlotId slot) const {
  if (page.value < 0 || page.value >= cache_.num_pages) {
    return InvalidArgument("page ", page, " is swapped, there are ",
                           cache_.num_pages);
  }
  if (slot.value < 0 || slot.value >= num_slots_) {
    return InvalidArgument("host slot ", slot, " is swapped with, there are ",
                           num_slots_);
  }
  return absl::OkStatus();
}

absl::Status CudaCacheEngine::SwapPages(std::span<const PageSave> saves,
                                        std::span<const PageLoad> loads,
                                        cudaStream_t steps) {
  for (const PageSave& save : saves) {
    RETURN_IF_ERROR(Check(save.page, save.slot));
  }
  for (const PageLoad& load : loads) {
    RETURN_IF_ERROR(Check(load.page, load.slot));
  }
  // Sorted by slot, consecutive slots are copied over the link at once.
  std::vector<PageSave> sorted_saves(saves.begin(), saves.end());
  std::vector<PageLoad> sorted_loads(loads.begin(), loads.end());
  std::ranges::sort(sorted_saves, {}, &PageSave::slot);
  std::ranges::sort(sorted_loads, {}, &PageLoad::slot);
  const auto run = [&](const auto& swaps, const auto& move) -> absl::Status {
    Batch batch;
    for (size_t i = 0; i < swaps.size(); ++i) {
      batch.list.pages[batch.list.count] = swaps[i].page.value;
      batch.slots[batch.list.count++] = swaps[i].slot.value;
      if (batch.list.count < batch_size_ && i + 1 < swaps.size()) continue;
      RETURN_IF_ERROR(move(batch));
      batch.list.count = 0;
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(run(sorted_saves,
                      [&](const Batch& batch) { return Save(batch, steps); }));
  return run(sorted_loads,
             [&](const Batch& batch) { return Load(batch, steps); });
}

absl::Status CudaCacheEngine::Save(const Batch& batch, cudaStream_t steps) {
  Staging& staging = NextStaging();
  RETURN_IF_CUDA_ERROR(cudaStreamWaitEvent(steps, staging.copied.get(), 0));
  RETURN_IF_ERROR(CudaGatherPages(batch.list, cache_, tokens_,
                                  staging.records.data(), device_, steps));
  RETURN_IF_CUDA_ERROR(cudaEventRecord(staging.used.get(), steps));
  RETURN_IF_CUDA_ERROR(cudaStreamWaitEvent(link_.get(), staging.used.get(), 0));
  RETURN_IF_ERROR(CopyRecords(batch, staging, cudaMemcpyDeviceToHost));
  RETURN_IF_CUDA_ERROR(cudaEventRecord(staging.copied.get(), link_.get()));
  return absl::OkStatus();
}

absl::Status CudaCacheEngine::Load(const Batch& batch, cudaStream_t steps) {
  Staging& staging = NextStaging();
  RETURN_IF_CUDA_ERROR(cudaStreamWaitEvent(link_.get(), staging.used.get(), 0));
  RETURN_IF_ERROR(CopyRecords(batch, staging, cudaMemcpyHostToDevice));
  RETURN_IF_CUDA_ERROR(cudaEventRecord(staging.copied.get(), link_.get()));
  RETURN_IF_CUDA_ERROR(cudaStreamWaitEvent(steps, staging.copied.get(), 0));
  RETURN_IF_ERROR(CudaScatterPages(batch.list, staging.records.data(), cache_,
                                   tokens_, device_, steps));
  RETURN_IF_CUDA_ERROR(cudaEventRecord(staging.used.get(), steps));
  return absl::OkStatus();
}

absl::Status CudaCacheEngine::CopyRecords(const Batch& batch,
                                          const Staging& staging,
                                          cudaMemcpyKind kind) {
  for (int begin = 0; begin < batch.list.count;) {
    int end = begin + 1;
    while (end < batch.list.count &&
           batch.slots[end] == batch.slots[end - 1] + 1) {
      ++end;
    }
    std::byte* const record = staging.records.data() + begin * record_bytes_;
    std::byte* const slot = slots_.data() + batch.slots[begin] * record_bytes_;
    const bool saves = kind == cudaMemcpyDeviceToHost;
    RETURN_IF_CUDA_ERROR(
        cudaMemcpyAsync(saves ? slot : record, saves ? record : slot,
                        (end - begin) * record_bytes_, kind, link_.get()));
    begin = end;
  }
  return absl::OkStatus();
}

CudaMemoryParts CudaCacheEngine::memory() const {
  const auto bytes = [](const auto& buffer) {
    return static_cast<int64_t>(buffer.size_bytes());
  };
  return {{"preempted pages", bytes(slots_), true},
          {"swapping pages", kNumStaging * bytes(staging_[0].records)},
          {"tail copies", bytes(copies_) + bytes(num_copies_)}};
}

}  // namespace espalier
