#include "tests/model/cuda/cuda_plan_model.h"

#include <vector>

#include "kernels/kv_cache/cuda_copy_tails.h"

namespace espalier::testing {

absl::Status CudaPlanModel::CopyTails(const std::vector<PageCopy>& copies) {
  if (copies.empty()) return absl::OkStatus();
  const int count = static_cast<int>(copies.size());
  ASSIGN_OR_RETURN(auto on_device, DeviceBuffer<PageCopy>::Create(count));
  ASSIGN_OR_RETURN(auto num_copies, DeviceBuffer<int>::Create(1));
  RETURN_IF_CUDA_ERROR(cudaMemcpy(on_device.data(), copies.data(),
                                  on_device.size_bytes(), cudaMemcpyDefault));
  RETURN_IF_CUDA_ERROR(
      cudaMemcpy(num_copies.data(), &count, sizeof(count), cudaMemcpyDefault));
  RETURN_IF_ERROR(CudaCopyTails(on_device.data(), num_copies.data(), count,
                                transformer_->cache(), {}, device_, nullptr));
  RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
  return absl::OkStatus();
}

absl::Status CudaPlanModel::Forward(const StepPlan& plan,
                                    std::span<float> logits) {
  RETURN_IF_ERROR(CopyTails(plan.page_copies));
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
