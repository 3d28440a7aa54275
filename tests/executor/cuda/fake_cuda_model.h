// FakeCudaModel: a model that launches the kernels of a forward pass of one
// layer, without the products, over memory that is not there; if it has an
// encoder, of a layer of that, too. For dry runs
// (tests/cuda_dry_run.h).
#pragma once

#include <optional>
#include <vector>

#include "exec_request/cuda_model.h"

namespace espalier::testing {

// As far as the host decides by it.
CudaDevice HopperDevice(int ordinal);

class FakeCudaModel : public CudaModel {
 public:
  // Without its barrier the pass is not one that an executor can run.
  explicit FakeCudaModel(const CudaDevice& device, bool has_barrier = true)
      : device_(device), has_barrier_(has_barrier) {}

  const ModelDescription& description() const override { return description_; }
  const CudaDevice& device() const override { return device_; }
  const CudaCallBounds& bounds() const override { return bounds_; }
  const CudaKvCache& cache() const override { return cache_; }
  CudaAttentionShape attention_shape() const override {
    return {.num_heads = 4, .num_kv_heads = 2, .head_dim = 64};
  }
  PageId null_page() const override { return {99}; }
  // It reads tokens, or features of `shape`, two rows of which are a position.
  void AddEncoder(std::optional<FeatureShape> shape = std::nullopt) {
    description_.encoder = {
        .max_source_tokens = shape ? shape->num_rows / 2 : 64,
        .features = shape,
        .decoder_prompt = {1}};
    bounds_.max_source_pages = 16;
  }
  CudaMemoryParts memory() const override { return {{"fake weights", 7}}; }
  absl::Status Enqueue(const CudaBatch& batch, float* logits,
                       cudaStream_t stream) override;

  // Batches of all calls of Enqueue.
  const std::vector<CudaBatch>& batches() const { return batches_; }

 private:
  // An embedding, and attention.
  absl::Status EnqueueLayer(const int* tokens, int num_tokens,
                            const CudaAttentionInputs& attention,
                            cudaStream_t stream) const;

  const CudaDevice device_;
  const bool has_barrier_;
  ModelDescription description_ = {
      .vocab_size = 32000, .max_context = 512, .num_pages = 99};
  CudaCallBounds bounds_ = {.max_tokens = 256,
                            .max_logits = 64,
                            .max_attention_items = 1000,
                            .max_attention_partials = 1000};
  const CudaKvCache cache_ = {.num_layers = 1,
                              .num_pages = 100,
                              .page_size = 16,
                              .num_kv_heads = 2,
                              .head_dim = 64};
  std::vector<CudaBatch> batches_;
};

}  // namespace espalier::testing
