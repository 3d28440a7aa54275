// CudaStepMemory: all device memory that changes from step to step, except
// activations, keys and values: the state of resident beams, the batch, work
// lists and candidates. It is one allocation of 4-byte words, so that a
// CudaDelta can write anywhere in it.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "base/cuda.h"
#include "executor/cuda/batch/cuda_batch_arrays.h"
#include "executor/cuda/batch/cuda_step_limits.h"
#include "kernels/resident/cuda_resident.h"
#include "kernels/resident/cuda_step_logprobs.h"

namespace espalier {

// Its arrays; all pointers are to device memory. `state` and `log_probs` are
// kernel arguments, so they repeat pointers to some of the batch's arrays.
struct CudaStepArrays : CudaBatchArrays<DeviceArray>,
                        CudaAttentionArrays<DeviceArray> {
  CudaAttentionArrays<DeviceArray> cross_attention;  // with an encoder
  CudaBeamState state;
  Candidate* candidates = nullptr;  // [max_candidates]
  int* num_candidates = nullptr;    // [max_rows]  by group
  CudaStepLogprobs log_probs;
  unsigned* verify_counters = nullptr;       // [max_rows]  0 between steps
  CudaMaskJob* mask_jobs = nullptr;          // [2 * max_rows]
  CudaPushdownJob* pushdown_jobs = nullptr;  // [2 * max_rows]
  CudaKeptPlace* kept_places = nullptr;
  // Masks of rows, then kept ones, then those of lists; `continuing` has none
  // of lists.
  CudaTokenMasks masks;
};

class CudaStepMemory {
 public:
  // Fills all tables with `null_page`. There is one table per slot, one for
  // padding, then the tables of rows without a slot.
  // Errors: kResourceExhausted.
  static absl::StatusOr<CudaStepMemory> Create(const CudaStepLimits& limits,
                                               PageId null_page, int page_size);

  const CudaStepLimits& limits() const { return limits_; }
  const CudaStepArrays& arrays() const { return arrays_; }
  int* words() const { return words_.data(); }

  int padding_table() const { return limits_.num_slots; }
  int row_table(int i) const { return limits_.num_slots + 1 + i; }
  int num_row_tables() const { return limits_.num_row_tables(); }
  int64_t num_bytes() const {
    return static_cast<int64_t>(words_.size_bytes());
  }
  // The part of num_bytes() that holds masks.
  int64_t num_mask_bytes() const;
  // The part of num_bytes() that holds tables.
  int64_t num_table_bytes() const {
    return num_table_words_ * static_cast<int64_t>(sizeof(int));
  }
  const int* table(int i) const {
    return arrays_.state.tables + int64_t{i} * limits_.row_stride();
  }
  // Encoder-decoder models: the source pages of a table. A group's source is in
  // the table of its first slot.
  const int* source_table(int i) const {
    return table(i) + limits_.table_stride;
  }

 private:
  CudaStepMemory() = default;

  CudaStepLimits limits_;
  CudaStepArrays arrays_;
  int64_t num_table_words_ = 0;
  DeviceBuffer<int> words_;
};

}  // namespace espalier
