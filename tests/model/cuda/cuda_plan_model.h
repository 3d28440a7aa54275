// CudaPlanModel: a CudaLlama as a Model that runs each plan by itself and waits
// for it, so that what tests the CPU's model (feeder.h) tests the device's.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "exec_request/model.h"
#include "model/cuda/cuda_llama.h"
#include "tests/model/cuda/cuda_plan_batch.h"

namespace espalier::testing {

class CudaPlanModel : public Model {
 public:
  CudaPlanModel(std::unique_ptr<CudaLlama> llama, const CudaDevice& device,
                const CudaPlanBatch::Options& options = {})
      : llama_(std::move(llama)), device_(device), options_(options) {}

  const ModelDescription& description() const override {
    return llama_->description();
  }
  absl::Status Forward(const StepPlan& plan, std::span<float> logits) override;

  CudaLlama& llama() { return *llama_; }

 private:
  absl::Status CopyTails(const std::vector<PageCopy>& copies);

  const std::unique_ptr<CudaLlama> llama_;
  const CudaDevice device_;
  const CudaPlanBatch::Options options_;
};

}  // namespace espalier::testing
