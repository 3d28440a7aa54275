// CudaBatchUploader: what the device has of the batch. Sends a batch's arrays
// as far as they differ from those of the last step, and plans attention's
// work anew when rows, tables or bounds of lengths changed.
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
  // `arrays` is where a step's device memory has the batch, with room for
  // batches within `limits`.
  CudaBatchUploader(const CudaStepArrays& arrays, const CudaStepLimits& limits,
                    const CudaAttentionShape& attention,
                    const CudaDevice& device);

  // REQUIRES: the batch is within the limits.
  void Send(const CudaInputBatch& batch, CudaDelta* delta);

  // The device writes over these of the batch that was sent.
  void ForgetDrafts() { sent_.verify_drafts.InvalidateFrom(0); }
  void ForgetVerifySequences() { sent_.verify_sequences.InvalidateFrom(0); }

  // Whether some query of the last work list is of several items, whose
  // results are to be merged.
  bool has_partials() const { return work_.has_partials; }
  bool has_cross_partials() const { return cross_work_.has_partials; }
  // Whether some item of it has tables of its queries' own.
  bool has_own_tables() const { return work_.has_own_tables; }

  // What was sent is lost: all of it is sent with the next batch.
  void Forget();

 private:
  // What the device has of a work list, and what that was planned for.
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
