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

namespace {

constexpr int kFakeWidth = 256;
constexpr CudaNorm kFakeNorm = {.size = kFakeWidth, .width = kFakeWidth};

}  // namespace

absl::Status FakeCudaModel::EnqueueLayer(const int* tokens, int num_tokens,
                                         const CudaAttentionInputs& attention,
                                         cudaStream_t stream) const {
  if (has_barrier_) {
    RETURN_IF_ERROR(CudaEmbed(tokens, num_tokens,
                              {.num_rows = 32000, .num_cols = kFakeWidth},
                              kFakeNorm, nullptr, nullptr, stream));
  }
  const CudaTokenSlots slots = {.table_stride = attention.table_stride};
  RETURN_IF_ERROR(CudaRotateAndStore(nullptr, num_tokens, 4, nullptr, {}, slots,
                                     cache_, 0, stream));
  return CudaAttention(attention, attention_shape(), nullptr, 8 * 64, cache_, 0,
                       nullptr, nullptr, device_, stream);
}

absl::Status FakeCudaModel::Enqueue(const CudaBatch& batch, float*,
                                    cudaStream_t stream) {
  batches_.push_back(batch);
  ASSIGN_OR_RETURN(const CudaDeviceScope scope,
                   CudaDeviceScope::Enter(device_.ordinal));
  const CudaSourceBatch& sources = batch.sources;
  if (sources.num_tokens > 0) {
    RETURN_IF_ERROR(EnqueueLayer(sources.tokens, sources.num_tokens,
                                 sources.attention, stream));
    const CudaTokenSlots slots = {.table_stride =
                                      batch.cross_attention.table_stride};
    RETURN_IF_ERROR(CudaRotateAndStore(nullptr, sources.num_tokens, 0, nullptr,
                                       {}, slots, cache_, 0, stream));
  }
  if (batch.num_tokens == 0) return absl::OkStatus();
  RETURN_IF_ERROR(
      EnqueueLayer(batch.tokens, batch.num_tokens, batch.attention, stream));
  if (description_.encoder) {
    RETURN_IF_ERROR(CudaAttention(batch.cross_attention, attention_shape(),
                                  nullptr, 8 * 64, cache_, 0, nullptr, nullptr,
                                  device_, stream));
  }
  if (batch.num_logits == 0) return absl::OkStatus();
  RETURN_IF_ERROR(CudaGatherRows(batch.logits_tokens, batch.num_logits,
                                 {.row_bytes = 16}, {.row_bytes = 16}, stream));
  return CudaRmsNorm(nullptr, batch.num_logits, kFakeNorm, DType::kBFloat16,
                     nullptr, stream);
}

}  // namespace espalier::testing
