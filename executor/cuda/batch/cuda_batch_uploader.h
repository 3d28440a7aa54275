// CudaBatchUploader: keeps a shadow copy of the batch on the device. It sends
// only the parts of a batch's arrays that differ from the last step's, and
// plans attention again when rows, tables or length bounds have changed.
//
// Thread safety: plain state, of one thread.
#pragma once

#include <vector>

#include "base/cuda.h"
#include "executor/cuda/batch/cuda_batch_arrays.h"
#include "executor/cuda/batch/cuda_input_batch.h"
#include "executor/cuda/batch/cuda_step_memory.h"
#include "executor/cuda/transfer/cuda_delta.h"

namespace espalier {

class CudaBatchUploader {
 public:
  // `arrays` are the batch's arrays in device memory, with room for batches
  // within `limits`.
  CudaBatchUploader(const CudaStepArrays& arrays, const CudaStepLimits& limits,
                    const CudaAttentionShape& attention,
                    const CudaDevice& device);

  // REQUIRES: the batch is within the limits.
  void Send(const CudaInputBatch& batch, CudaDelta* delta);

  // Invalidate the shadow copies of arrays that the device overwrites.
  void ForgetDrafts() { sent_.verify_drafts.InvalidateFrom(0); }
  void ForgetVerifySequences() { sent_.verify_sequences.InvalidateFrom(0); }

  // True if some query of the last work list is split over several items, whose
  // partial results must be merged.
  bool has_partials() const { return work_.has_partials; }
  bool has_cross_partials() const { return cross_work_.has_partials; }
  // True if some item of that list has a separate table for each query.
  bool has_own_tables() const { return work_.has_own_tables; }

  // Invalidates all shadow copies; the next batch is sent in full.
  void Forget();

 private:
  // Shadow copy of a work list, and the inputs that it was planned for.
  struct SentWork {
    CudaAttentionArrays<SentArray> arrays = {};
    std::vector<CudaAttentionRow> rows = {};
    std::vector<CudaSharedPrefix> runs = {};
    int num_tokens = -1;  // -1: nothing
    bool has_partials = false;
    bool has_own_tables = false;
  };
  void SendWork(const std::vector<CudaAttentionRow>& rows,
                const std::vector<CudaSharedPrefix>& runs, int num_tokens,
                const CudaAttentionArrays<DeviceArray>& to, SentWork* sent,
                CudaDelta* delta);
  void SendPrompts(const CudaInputBatch& batch, CudaDelta* delta);

  // Constant after construction.
  const CudaStepArrays arrays_;
  const CudaStepLimits limits_;
  const CudaAttentionShape attention_;
  const CudaDevice device_;

  CudaBatchArrays<SentArray> sent_;
  SentWork work_;
  SentWork cross_work_;
};

}  // namespace espalier
