// CudaDraftMemory: device memory for runs of a draft model, in addition to its
// keys and values: tables, inputs of a step, sampling parameters, work lists.
// It is one allocation of words, so that a CudaDelta can write anywhere in it.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "base/cuda_memory.h"
#include "exec_request/cuda_model.h"
#include "executor/cuda/batch/cuda_batch_arrays.h"
#include "kernels/resident/cuda_resident.h"
#include "kernels/verify/cuda_draft_steps.h"

namespace espalier {

// Bounds of a run.
struct CudaDraftLimits {
  int max_rows = 1;        // sequences
  int max_row_tokens = 1;  // per sequence, in the first step
  int table_stride = 1;    // pages per sequence
  int max_edits = 1;       // over all sequences
  int max_items = 1;       // attention work items
  int max_partials = 1;

  // Returns limits within the bounds of a call of the model.
  static CudaDraftLimits Of(const CudaModel& model);
  int max_tokens() const { return max_rows * max_row_tokens; }
};

// Inputs of a step: one token per row, or max_row_tokens in the first step.
struct CudaDraftInputs : CudaAttentionArrays<DeviceArray> {
  int* tokens = nullptr;        // [max_tokens]
  int* positions = nullptr;     // [max_tokens]
  int* token_tables = nullptr;  // [max_tokens]
};

// All pointers are to device memory.
struct CudaDraftArrays {
  // [max_rows + 1, table_stride]; the last one is the null table.
  int* tables = nullptr;
  CudaDraftInputs first;
  CudaDraftInputs next;
  int* first_logits_tokens = nullptr;  // [max_rows]
  CudaDraftRow* rows = nullptr;        // [max_rows]
  int* num_draws = nullptr;            // [1]
  CudaDraw* draws = nullptr;           // [max_rows]
  int* row_params = nullptr;           // [max_rows]
  SamplingParams* params = nullptr;    // [max_rows]
  float* cum_log_probs = nullptr;      // [max_rows]  zeros
  CudaRowEdits* row_edits = nullptr;   // [max_rows]
  int* kept_rows = nullptr;            // [max_rows]
  TokenEdit* edits = nullptr;          // [max_edits]
  Candidate* candidates = nullptr;     // [max_rows]
  CudaStepClock* clock = nullptr;      // [1]
};

class CudaDraftMemory {
 public:
  // Allocates on the thread's current device.
  // Errors: kResourceExhausted.
  static absl::StatusOr<CudaDraftMemory> Create(const CudaDraftLimits& limits,
                                                PageId null_page);

  const CudaDraftLimits& limits() const { return limits_; }
  const CudaDraftArrays& arrays() const { return arrays_; }
  int* words() const { return words_.data(); }
  int null_table() const { return limits_.max_rows; }
  const int* table(int row) const {
    return arrays_.tables + int64_t{row} * limits_.table_stride;
  }

 private:
  CudaDraftLimits limits_;
  CudaDraftArrays arrays_;
  DeviceBuffer<int> words_;
};

}  // namespace espalier
