// CudaPlanBatch: a StepPlan in device memory, as CudaTransformer takes it. Row
// r's pages are table r. Where rows that follow each other feed one token each
// and begin with the same full pages, attention reads those once, as a shared
// run.
//
//   ASSIGN_OR_RETURN(
//       auto batch, CudaPlanBatch::Create(plan, transformer, device));
//   RETURN_IF_ERROR(
//       transformer.Enqueue(batch.view(), logits, stream));
#pragma once

#include "absl/status/statusor.h"
#include "base/cuda.h"
#include "exec_request/step_plan.h"
#include "model/cuda/cuda_transformer.h"

namespace espalier::testing {

class CudaPlanBatch {
 public:
  struct Options {
    bool share_runs = true;
    int max_items = 8192;
    int max_partials = 16384;
  };

  // REQUIRES: plan is not empty.
  static absl::StatusOr<CudaPlanBatch> Create(
      const StepPlan& plan, const CudaTransformer& transformer,
      const CudaDevice& device, const Options& options);

  // Lives as long as this.
  const CudaBatch& view() const { return view_; }

 private:
  CudaBatch view_;
  DeviceBuffer<int> ints_;
  DeviceBuffer<CudaAttentionItem> items_;
};

}  // namespace espalier::testing
