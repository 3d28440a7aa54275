#include "tests/executor/cuda/fake_cuda_model.h"

#include "base/cuda_device_scope.h"
#include "base/status.h"
#include "kernels/elementwise/cuda_elementwise.h"
#include "kernels/kv_cache/cuda_rotate_and_store.h"

namespace espalier::testing {

CudaDevice HopperDevice(int ordinal) {
  CudaDevice device;
  device.ordinal = ordinal;
  device.num_sms = 132;
  device.compute_capability = 90;
  device.max_shared_bytes = 227 << 10;
  return device;
}

absl::Status FakeCudaModel::Enqueue(const CudaBatch& batch, float*,
                                    cudaStream_t stream) {
  batches_.push_back(batch);
  ASSIGN_OR_RETURN(const CudaDeviceScope scope,
                   CudaDeviceScope::Enter(device_.ordinal));
  constexpr int kWidth = 256;
  const CudaNorm norm = {.size = kWidth, .width = kWidth};
  if (has_barrier_) {
    RETURN_IF_ERROR(CudaEmbed(batch.tokens, batch.num_tokens,
                              {.num_rows = 32000, .num_cols = kWidth}, norm,
                              nullptr, nullptr, stream));
  }
  const CudaTokenSlots slots = {.table_stride = batch.attention.table_stride};
  RETURN_IF_ERROR(CudaRotateAndStore(nullptr, batch.num_tokens, 4, {}, slots,
                                     cache_, 0, stream));
  RETURN_IF_ERROR(CudaAttention(batch.attention, attention_shape(), nullptr,
                                8 * 64, cache_, 0, nullptr, nullptr, device_,
                                stream));
  if (batch.num_logits == 0) return absl::OkStatus();
  RETURN_IF_ERROR(CudaGatherRows(batch.logits_tokens, batch.num_logits,
                                 {.row_bytes = 16}, {.row_bytes = 16}, stream));
  return CudaRmsNorm(nullptr, batch.num_logits, norm, DType::kBFloat16, nullptr,
                     stream);
}

}  // namespace espalier::testing
