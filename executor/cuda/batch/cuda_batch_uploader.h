// CudaBatchUploader: keeps a shadow copy of the batch on the device. It sends
// only the parts of a batch's arrays that differ from the last step's.
// CudaAttentionUploader does so for a work list of attention, and plans
// attention again when rows, tables or length bounds have changed.
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

class CudaAttentionUploader {
 public:
  // The place of the list in device memory, its bounds, and inputs of plans.
  struct Target {
    CudaAttentionArrays<DeviceArray> arrays = {};
    CudaAttentionShape shape = {};
    int max_items = 0;
    int max_partials = 0;
    CudaDevice device = {};
  };
  explicit CudaAttentionUploader(const Target& target) : target_(target) {}

  // REQUIRES: the list is within the bounds.
  void Send(const std::vector<CudaAttentionRow>& rows,
            const std::vector<CudaSharedPrefix>& runs, int num_tokens,
            CudaDelta* delta);

  // True if some query of the last list is split over several items, whose
  // partial results must be merged.
  bool has_partials() const { return has_partials_; }
  // True if some item of that list has a separate table for each query.
  bool has_own_tables() const { return has_own_tables_; }

  // Invalidates the shadow copy.
  void Forget();

 private:
  const Target target_;
  // Shadow copy of the list, and the inputs that it was planned for.
  CudaAttentionArrays<SentArray> sent_;
  std::vector<CudaAttentionRow> rows_;
  std::vector<CudaSharedPrefix> runs_;
  int num_tokens_ = -1;  // -1: nothing
  bool has_partials_ = false;
  bool has_own_tables_ = false;
};

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

  const CudaAttentionUploader& attention() const { return attention_; }
  const CudaAttentionUploader& cross_attention() const {
    return cross_attention_;
  }

  // Invalidates all shadow copies; the next batch is sent in full.
  void Forget();

 private:
  void SendPrompts(const CudaInputBatch& batch, CudaDelta* delta);

  const CudaStepArrays arrays_;
  CudaBatchArrays<SentArray> sent_;
  CudaAttentionUploader attention_;
  CudaAttentionUploader cross_attention_;
};

}  // namespace espalier
