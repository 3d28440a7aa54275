#include "tests/model/cuda/cuda_plan_model.h"

#include "kernels/kv_cache/cuda_cache_engine.h"

namespace espalier::testing {

absl::Status CudaPlanModel::Forward(const StepPlan& plan,
                                    std::span<float> logits) {
  CudaCacheEngine cache(transformer_->cache(), {}, device_);
  RETURN_IF_ERROR(cache.ReserveCopyList());
  RETURN_IF_ERROR(cache.CopyPages(plan.page_copies, nullptr));
  if (plan.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(
      const CudaPlanBatch batch,
      CudaPlanBatch::Create(plan, *transformer_, device_, options_));
  // 0xFF bytes are NaN, which shows in unwritten rows.
  ASSIGN_OR_RETURN(auto logits_rows,
                   DeviceBuffer<float>::Create(logits.size()));
  RETURN_IF_CUDA_ERROR(
      cudaMemset(logits_rows.data(), 0xFF, logits_rows.size_bytes()));
  RETURN_IF_ERROR(
      transformer_->Enqueue(batch.view(), logits_rows.data(), nullptr));
  RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
  RETURN_IF_CUDA_ERROR(cudaMemcpy(logits.data(), logits_rows.data(),
                                  logits.size_bytes(), cudaMemcpyDefault));
  return absl::OkStatus();
}

}  // namespace espalier::testing
