// CudaBatchUploader: what the device has of the batch. Sends a batch's arrays
// as far as they differ from those of the last step, and plans attention's
// work anew when rows, tables or bounds of lengths changed.
//
// Thread safety: plain state, of one thread.
#pragma once

#include <vector>

#include "base/cuda.h"
#include "executor/cuda/cuda_batch_arrays.h"
#include "executor/cuda/cuda_delta.h"
#include "executor/cuda/cuda_input_batch.h"
#include "executor/cuda/cuda_step_memory.h"

namespace espalier {

class CudaBatchUploader {
 public:
  // `arrays` is where a step's device memory has the batch, with room for
  // batches within `limits`.
  CudaBatchUploader(const CudaStepArrays& arrays, const CudaStepLimits& limits,
                    const CudaAttentionShape& attention,
                    const CudaDevice& device);

  // REQUIRES: the batch is within the limits.
  void Send(const CudaInputBatch& batch, CudaDelta* delta);

  // The device writes over verify_drafts of the batch that was sent.
  void ForgetDrafts() { sent_.verify_drafts.InvalidateFrom(0); }

  // Whether some query of the last work list is of several items, whose
  // results are to be merged.
  bool has_partials() const { return has_partials_; }

  // What was sent is lost: all of it is sent with the next batch.
  void Forget();

 private:
  void SendAttention(const CudaInputBatch& batch, CudaDelta* delta);
  void SendPrompts(const CudaInputBatch& batch, CudaDelta* delta);

  // Constant after construction.
  const CudaStepArrays arrays_;
  const CudaStepLimits limits_;
  const CudaAttentionShape attention_;
  const CudaDevice device_;

  CudaBatchArrays<SentArray> sent_;
  CudaAttentionArrays<SentArray> sent_work_;

  // What the last work list was planned for.
  std::vector<CudaAttentionRow> planned_rows_;
  std::vector<CudaSharedPrefix> planned_runs_;
  int planned_tokens_ = -1;
  bool has_partials_ = false;
};

}  // namespace espalier
