// CudaBlockingModel: a synchronous adapter from CudaModel to the interface
// Model, one plan at a time. It sends a plan's arrays to the device, runs the
// model, copies the logits to the host and waits for them. It serves draft
// models, because the host chooses tokens between their steps
// (executor/drafts/draft_model.h). Requests run on CudaExecutor instead.
//
// Cost: the host waits for each call of the model, which copies 4 * vocab_size
// bytes to the host for each row of logits.
//
// Thread safety: as Model.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "base/cuda_pinned_memory.h"
#include "base/cuda_resources.h"
#include "exec_request/cuda_model.h"
#include "exec_request/model.h"
#include "executor/cuda/batch/cuda_plan_call.h"
#include "kernels/kv_cache/cuda_cache_engine.h"

namespace espalier {

class CudaBlockingModel : public Model {
 public:
  // REQUIRES: `model` has no encoder, and runs nothing else in the lifetime of
  // the adapter.
  // Errors: kResourceExhausted if memory runs out, else as base/cuda.h.
  static absl::StatusOr<std::unique_ptr<CudaBlockingModel>> Create(
      std::shared_ptr<CudaModel> model);
  ~CudaBlockingModel() override;

  const ModelDescription& description() const override {
    return model_->description();
  }
  // Runs a plan of any size, in as many calls of the model as its bounds
  // require.
  //   logits  [plan.num_logits, vocab_size]  f32  host  out
  // Errors: the model's; kCancelled if plan.stop was requested between two
  // calls; as base/cuda.h.
  absl::Status Forward(const StepPlan& plan, std::span<float> logits) override;

 private:
  explicit CudaBlockingModel(std::shared_ptr<CudaModel> model)
      : model_(std::move(model)) {}
  absl::Status Init();
  absl::Status Run(const CudaPlanCall& call, std::span<float> logits);
  struct Staged;
  class Stager;
  // Copies the arrays of the call into staging memory.
  Staged Stage(const CudaPlanCall& call) const;

  const std::shared_ptr<CudaModel> model_;
  int max_logits_rows_ = 1;  // per call of the model
  CudaStream stream_;
  std::optional<CudaCacheEngine> cache_;
  PinnedBuffer<int> staged_;  // all arrays of int of a call; ints_ has a copy
  DeviceBuffer<int> ints_;
  PinnedBuffer<CudaAttentionItem> staged_items_;
  DeviceBuffer<CudaAttentionItem> items_;
  PinnedBuffer<float> host_logits_;  // [max_logits_rows, vocab_size]
  DeviceBuffer<float> logits_;
};

}  // namespace espalier
