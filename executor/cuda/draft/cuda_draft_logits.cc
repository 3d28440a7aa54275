#include "executor/cuda/draft/cuda_draft_logits.h"

#include <cstddef>
#include <utility>

#include "base/cuda.h"
#include "base/cuda_device_scope.h"
#include "base/cuda_memory.h"
#include "executor/cuda/draft/row_ranges.h"

namespace espalier {

struct CudaDraftLogitsPool::Memory {
  Memory(DeviceBuffer<float> buffer, int num_rows, int row_size, int device)
      : logits(std::move(buffer)),
        rows(num_rows),
        vocab_size(row_size),
        ordinal(device) {}
  ~Memory() {
    const auto scope = CudaDeviceScope::EnterIfPossible(ordinal);
    logits = {};
  }

  DeviceBuffer<float> logits;
  RowRanges rows;
  const size_t vocab_size;
  const int ordinal;
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
  const std::optional<int> first = memory_->rows.Take(num_rows);
  if (!first.has_value()) return std::nullopt;
  std::shared_ptr<const float> logits(
      data() + *first * memory_->vocab_size,
      [memory = memory_, first = *first, num_rows](const float*) {
        memory->rows.GiveBack(first, num_rows);
      });
  return Rows{*first,
              DraftLogits(std::move(logits), num_rows * memory_->vocab_size,
                          memory_->ordinal)};
}

float* CudaDraftLogitsPool::data() const { return memory_->logits.data(); }

int CudaDraftLogitsPool::num_free() const { return memory_->rows.num_free(); }

}  // namespace espalier
