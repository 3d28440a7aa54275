#include "executor/cuda/draft/cuda_draft_logits.h"

#include <cstddef>
#include <mutex>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/cuda.h"
#include "base/cuda_device_scope.h"
#include "base/cuda_memory.h"
#include "executor/cuda/draft/row_ranges.h"

namespace espalier {

class CudaDraftLogitsPool::Memory {
 public:
  Memory(DeviceBuffer<float> logits, int num_rows, int vocab_size, int ordinal)
      : vocab_size_(vocab_size),
        ordinal_(ordinal),
        logits_(std::move(logits)),
        rows_(num_rows) {}
  ~Memory() {
    const auto scope = CudaDeviceScope::EnterIfPossible(ordinal_);
    logits_ = {};
  }

  float* data() const { return logits_.data(); }
  size_t SizeOf(int num_rows) const { return size_t(num_rows) * vocab_size_; }
  int ordinal() const { return ordinal_; }

  std::optional<int> Take(int num_rows) {
    const std::lock_guard lock(mutex_);
    return rows_.Take(num_rows);
  }
  void GiveBack(int first, int num_rows) {
    const std::lock_guard lock(mutex_);
    rows_.GiveBack(first, num_rows);
  }
  int num_free() const {
    const std::lock_guard lock(mutex_);
    return rows_.num_free();
  }

 private:
  const int vocab_size_;
  const int ordinal_;
  DeviceBuffer<float> logits_;
  mutable std::mutex mutex_;
  RowRanges rows_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<CudaDraftLogitsPool> CudaDraftLogitsPool::Create(
    int num_rows, int vocab_size, const CudaDevice& device) {
  ASSIGN_OR_RETURN(DeviceBuffer<float> logits,
                   TakeDeviceMemory<float>("logits of drafts",
                                           size_t(num_rows) * vocab_size));
  return CudaDraftLogitsPool(std::make_shared<Memory>(
      std::move(logits), num_rows, vocab_size, device.ordinal));
}

std::optional<CudaDraftLogitsPool::Rows> CudaDraftLogitsPool::Take(
    int num_rows) {
  const std::optional<int> first = memory_->Take(num_rows);
  if (!first.has_value()) return std::nullopt;
  std::shared_ptr<const float> logits(
      memory_->data() + memory_->SizeOf(*first),
      [memory = memory_, first = *first, num_rows](const float*) {
        memory->GiveBack(first, num_rows);
      });
  return Rows{*first, DraftLogits(std::move(logits), memory_->SizeOf(num_rows),
                                  memory_->ordinal())};
}

float* CudaDraftLogitsPool::data() const { return memory_->data(); }

int CudaDraftLogitsPool::num_free() const { return memory_->num_free(); }

}  // namespace espalier
