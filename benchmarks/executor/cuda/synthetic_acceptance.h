// SyntheticModel: a model whose drafts are accepted at a given rate, to measure
// the cost of speculation with random weights. It runs the wrapped model, in
// the same time, and then makes one token certain: a hash of the last token and
// its position. A draft model with rate a makes this token certain at a share a
// of all positions, chosen by another hash, and its neighbour at the others;
// the target makes it certain everywhere.
#pragma once

#include <memory>
#include <utility>

#include "exec_request/cuda_model.h"

namespace espalier {

class SyntheticModel : public CudaModel {
 public:
  //   agreement  in [0, 1]: how often the token is the target's
  SyntheticModel(std::shared_ptr<CudaModel> model, double agreement)
      : model_(std::move(model)), agreement_(agreement) {}

  const ModelDescription& description() const override {
    return model_->description();
  }
  const CudaDevice& device() const override { return model_->device(); }
  const CudaCallBounds& bounds() const override { return model_->bounds(); }
  const CudaKvCache& cache() const override { return model_->cache(); }
  CudaAttentionShape attention_shape() const override {
    return model_->attention_shape();
  }
  PageId null_page() const override { return model_->null_page(); }
  CudaMemoryParts memory() const override { return model_->memory(); }
  absl::Status Enqueue(const CudaBatch& batch, float* logits,
                       cudaStream_t stream) override;

 private:
  const std::shared_ptr<CudaModel> model_;
  const double agreement_;
};

}  // namespace espalier
