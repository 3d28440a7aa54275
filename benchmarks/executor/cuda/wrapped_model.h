// WrappedModel: forwards everything to another model but the forward pass, so
// that a derived class can replace its logits.
#pragma once

#include <memory>
#include <utility>

#include "exec_request/cuda_model.h"

namespace espalier {

class WrappedModel : public CudaModel {
 public:
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

 protected:
  explicit WrappedModel(std::shared_ptr<CudaModel> model)
      : model_(std::move(model)) {}
  CudaModel& model() { return *model_; }

 private:
  const std::shared_ptr<CudaModel> model_;
};

}  // namespace espalier
