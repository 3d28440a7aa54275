// Selection on the device: what kernels/select.h does on the host, with the
// same order, the same ties and the same treatment of NaN and infinities, for
// all groups of a step in one or two launches. A row's answer is a pure
// function of the row: the same bits among any other rows and at any place.
// It differs from the host's form by the rounding of log_sum alone, as the
// twin there does.
//
// Everything is in device memory, also the number of groups, so that a
// captured graph serves any composition of a batch of up to `num_rows` rows.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "absl/status/status.h"
#include "base/cuda.h"
#include "kernels/packed_matrix.h"
#include "kernels/score_processors.h"
#include "kernels/select.h"

namespace espalier {

// One group's rows and what to choose of them.
struct CudaSelectGroup {
  int first_row = 0;  // its rows are [first_row, first_row + num_rows)
  int num_rows = 0;
  int num_candidates = 1;   // m
  int first_candidate = 0;  // its place in `candidates`
  ScoreDomain domain = ScoreDomain::kLogProbs;
};

// The edits of a row: edits[begin, end), sorted by token, each once.
struct CudaRowEdits {
  int begin = 0;
  int end = 0;
  float repetition_penalty = 1.0f;
};

struct CudaSelectInputs {
  // Host values: they size the launch.
  DType dtype = DType::kFloat32;  // of logits: kFloat32 or kBFloat16
  int num_rows = 0;               // a bound, as captured
  int vocab_size = 0;
  int max_groups = 0;      // bound of *num_groups
  int max_candidates = 1;  // bound of every group's m

  // Device memory.
  const void* logits = nullptr;             // [num_rows, vocab_size]
  const int* num_groups = nullptr;          // [1]
  const CudaSelectGroup* groups = nullptr;  // [max_groups]
  const int* row_groups = nullptr;          // [num_rows]; -1: not used
  const float* cum_log_probs = nullptr;     // [num_rows] nats; -inf: dead
  const CudaRowEdits* row_edits = nullptr;  // [num_rows], or null: none
  const TokenEdit* edits = nullptr;
};

struct CudaSelectOutputs {
  Candidate* candidates = nullptr;  // best first; a group's at first_candidate
  int* num_candidates = nullptr;    // [max_groups]  how many there are
};

// Bytes of scratch that CudaSelect needs; the caller zeroes it once, CudaSelect
// leaves it fit for the next call.
size_t CudaSelectScratchBytes(const CudaSelectInputs& inputs,
                              const CudaDevice& device);

// Enqueues on `stream` and returns; never allocates, may be captured.
// Errors: kInvalidArgument if a shape is impossible, kInternal if a launch is.
absl::Status CudaSelect(const CudaSelectInputs& inputs,
                        const CudaSelectOutputs& outputs, void* scratch,
                        const CudaDevice& device, cudaStream_t stream);

}  // namespace espalier
