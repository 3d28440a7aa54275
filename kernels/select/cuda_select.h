// Selection on the device: kernels/select/select.h for all groups of a step,
// with the same order, ties and treatment of NaN and infinities. It takes one
// launch or two, and eleven more if a group may have more than 64 candidates. A
// row's result is a pure function of the row: the same bits among any other
// rows and at any place. It differs from the host's result by the rounding of
// log_sum only, as the reference does.
//
// The logits are read once, and a small part of them again. Dead rows and rows
// without a group are not read. For costs see cuda_select.cu and, for groups of
// more than 64 candidates, cuda_select_wide.cu. Groups that take the exact
// fallback are slow: those with hundreds of equal scores at the cut, and in
// kLogits those with several living rows and edits.
//
// All inputs are in device memory, including the number of groups, so that a
// captured graph serves any composition of a batch of up to `num_rows` rows.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "base/cuda.h"
#include "base/dtype.h"
#include "kernels/logits/candidate.h"
#include "kernels/logits/cuda_row_edits.h"
#include "kernels/select/cuda_select_layout.h"

namespace espalier {

// The rows of one group and the number of candidates to choose from them.
// Chooses per row as SelectRow and over rows as MergeCandidates; also in
// kLogits, where a row's tokens are chosen by edited logit and ranked by their
// sum. A group with num_candidates 0 is sampled by CudaSample: little of its
// rows is read, and nothing is written. Rows without a group are not read.
// REQUIRES: num_rows >= 1, num_candidates >= 0; no two groups share rows or
// places in `candidates`.
struct CudaSelectGroup {
  int first_row = 0;  // its rows are [first_row, first_row + num_rows)
  int num_rows = 0;
  int num_candidates = 1;   // m
  int first_candidate = 0;  // its place in `candidates`
  ScoreDomain domain = ScoreDomain::kLogProbs;
};

// Up to this many groups, if narrow and without edits, may be selected faster,
// which needs tight bounds.
inline constexpr int kMaxFewCudaSelectGroups = 16;

struct CudaSelectInputs {
  // Host values: they size the launch.
  DType dtype = DType::kFloat32;  // kFloat32 or kBFloat16
  int num_rows = 0;               // upper bound, as captured
  int vocab_size = 0;
  int max_groups = 0;      // bound of *num_groups
  int max_candidates = 1;  // bound of every group's m
  // Bound of num_rows of every group that has candidates; 0 means num_rows.
  int max_group_rows = 0;
  // Size of `candidates`: a bound of every group's first_candidate +
  // num_candidates, including places in between that CudaSample fills. 0 means
  // max_groups * max_candidates. If max_candidates is above 64, scratch has 72
  // bytes for each.
  int max_total_candidates = 0;

  // Device memory.
  // Read fastest where rows begin at multiples of 16 bytes.
  const void* logits = nullptr;             // [num_rows, vocab_size]
  const int* num_groups = nullptr;          // [1]
  const CudaSelectGroup* groups = nullptr;  // [max_groups]
  const int* row_groups = nullptr;          // [num_rows]; -1: no group
  const float* cum_log_probs = nullptr;     // [num_rows] nats; -inf: dead
  const CudaRowEdits* row_edits = nullptr;  // [num_rows], or null: none
  const TokenEdit* edits = nullptr;
  const uint32_t* masks = nullptr;  // [masks, NumMaskWords(vocab_size)]
};

struct CudaSelectOutputs {
  Candidate* candidates = nullptr;  // best first, from first_candidate on
  int* num_candidates = nullptr;    // [max_groups]  number found
};

// Returns the bounds that determine a call's scratch.
CudaSelectBounds BoundsOf(const CudaSelectInputs& inputs);

// Returns the scratch bytes of CudaSelect (CudaSelectLayout), to be aligned to
// 256. Scratch keeps nothing between calls, needs no clearing and may be
// shared.
size_t CudaSelectScratchBytes(const CudaSelectInputs& inputs);

// Returns the largest max_group_rows for which CudaSelect enqueues the same
// launches as for `inputs`. One captured call serves groups of all these sizes,
// and none is slower than with its own bound. Inputs that differ in
// max_group_rows only have at most three buckets.
int CudaSelectRowBucket(const CudaSelectInputs& inputs,
                        const CudaDevice& device);

// Enqueues on `stream` and returns; never allocates, may be captured.
// REQUIRES: all inputs but the logits are complete at the last barrier of the
// stream, as in a step (GridDependency::kReadsEarly).
// Errors: kInvalidArgument if a shape is impossible, or there are more than
// kMaxCudaLogitsRows rows or kMaxCudaLogits; kInternal if a launch is
// refused.
absl::Status CudaSelect(const CudaSelectInputs& inputs,
                        const CudaSelectOutputs& outputs, void* scratch,
                        const CudaDevice& device, cudaStream_t stream);

}  // namespace espalier
