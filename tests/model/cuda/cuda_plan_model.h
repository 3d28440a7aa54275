// CudaPlanModel: a CudaTransformer as a Model that runs each plan by itself and
// waits for it, so that what tests the CPU's model (feeder.h) tests the
// device's.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "exec_request/model.h"
#include "model/cuda/cuda_transformer.h"
#include "tests/model/cuda/cuda_plan_batch.h"

namespace espalier::testing {

class CudaPlanModel : public Model {
 public:
  CudaPlanModel(std::unique_ptr<CudaTransformer> transformer,
                const CudaDevice& device,
                const CudaPlanBatch::Options& options = {})
      : transformer_(std::move(transformer)),
        device_(device),
        options_(options) {}

  const ModelDescription& description() const override {
    return transformer_->description();
  }
  absl::Status Forward(const StepPlan& plan, std::span<float> logits) override;

  CudaTransformer& transformer() { return *transformer_; }

 private:
  const std::unique_ptr<CudaTransformer> transformer_;
  const CudaDevice device_;
  const CudaPlanBatch::Options options_;
};

}  // namespace espalier::testing
