// CudaStepMemory: everything in device memory that changes from step to step,
// except activations and keys and values: the state of resident beams, the
// batch, work lists and candidates. One allocation of 4-byte words, so that a
// CudaDelta can write anywhere in it.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "base/cuda.h"
#include "executor/cuda/cuda_step_limits.h"
#include "kernels/attention/cuda_attention.h"
#include "kernels/perturb/cuda_perturb.h"
#include "kernels/resident/cuda_history_edits.h"
#include "kernels/resident/cuda_resident.h"
#include "kernels/resident/cuda_step_logprobs.h"
#include "kernels/sample/cuda_sample.h"
#include "kernels/select/cuda_select.h"

namespace espalier {

// What is in it besides `state`. All pointers are to device memory.
struct CudaStepArrays {
  CudaResidentState state;
  // By token of the batch.
  const int* token_tables = nullptr;  // [max_tokens]
  // Attention.
  const CudaAttentionItem* items = nullptr;  // [max_items]
  const int* item_counts = nullptr;          // [2]
  const int* partial_indptr = nullptr;       // [max_tokens + 1]
  // Selection. state.row_groups, but -1 where the group is not selected for.
  const int* select_row_groups = nullptr;  // [max_rows]
  CudaRowEdits* row_edits = nullptr;       // [max_rows]
  TokenEdit* edits = nullptr;              // [max_edits]
  // Of rows whose edits follow from histories.
  const CudaEditRow* edit_rows = nullptr;    // [max_rows]
  const CudaEditRule* edit_rules = nullptr;  // [max_rows]
  Candidate* candidates = nullptr;           // [max_candidates]
  int* num_candidates = nullptr;             // [max_rows]  by group
  // Sampling.
  const int* num_draws = nullptr;          // [1]
  const int* row_params = nullptr;         // [max_rows]
  const SamplingParams* params = nullptr;  // [max_rows]
  // Perturbed rows.
  const CudaSelectGroup* perturbed_selections = nullptr;  // [max_rows]
  const CudaPerturbRow* perturbed_rows = nullptr;         // [max_rows]
  const int* perturbed_params = nullptr;                  // [max_rows]
  // Log-probabilities.
  CudaStepLogProbs log_probs;
};

class CudaStepMemory {
 public:
  // All tables name `spare_page` everywhere. There is one for every slot, one
  // for padding, then those of rows that have no slot.
  // Errors: kResourceExhausted.
  static absl::StatusOr<CudaStepMemory> Create(const CudaStepLimits& limits,
                                               PageId spare_page,
                                               int page_size);

  const CudaStepLimits& limits() const { return limits_; }
  const CudaStepArrays& arrays() const { return arrays_; }
  int* words() const { return words_.data(); }

  int padding_table() const { return limits_.num_slots; }
  int row_table(int i) const { return limits_.num_slots + 1 + i; }
  int num_row_tables() const { return limits_.num_row_tables(); }
  int64_t num_bytes() const {
    return static_cast<int64_t>(words_.size_bytes());
  }
  // Of these, for tables.
  int64_t num_table_bytes() const {
    return num_table_words_ * static_cast<int64_t>(sizeof(int));
  }
  const int* table(int i) const {
    return arrays_.state.tables + int64_t{i} * limits_.table_stride;
  }

 private:
  CudaStepMemory() = default;

  CudaStepLimits limits_;
  CudaStepArrays arrays_;
  int64_t num_table_words_ = 0;
  DeviceBuffer<int> words_;
};

}  // namespace espalier
