// Selection on the device: what kernels/select/select.h does on the host, with
// the same order, the same ties and the same treatment of NaN and infinities,
// for all groups of a step. It takes one launch or two, and eleven more where a
// group may have more than 64 candidates. A row's answer is a pure function of
// the row: the same bits among any other rows and at any place. It differs from
// the host's form by the rounding of log_sum alone, as the twin there does.
//
// The logits are read once, and a little of them again; a dead row, or one of
// no group, is not read. What it costs stands in cuda_select.cu and, for groups
// of more than 64 candidates, in cuda_select_wide.cu. Slow are groups that are
// chosen row by row: where scores tie by the hundred at the cut, and in kLogits
// where a group has several living rows and edits.
//
// Everything is in device memory, also the number of groups, so that a
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

// One group's rows and what to choose of them: per row as SelectRow does, and
// of all these as MergeCandidates does, also in kLogits, where a row's tokens
// are chosen by edited logit and ranked by what they sum up to.
// A group with num_candidates 0 is chosen for by CudaSample:
// little of its rows is read, and nothing is written for it. Rows that name
// no group are not read at all.
// REQUIRES: num_rows >= 1, num_candidates >= 0; no two groups share rows or
// places in `candidates`.
struct CudaSelectGroup {
  int first_row = 0;  // its rows are [first_row, first_row + num_rows)
  int num_rows = 0;
  int num_candidates = 1;   // m
  int first_candidate = 0;  // its place in `candidates`
  ScoreDomain domain = ScoreDomain::kLogProbs;
};

// Up to so many groups, if narrow and without edits, may be chosen faster: then
// bounds near the truth pay.
inline constexpr int kMaxFewCudaSelectGroups = 16;

struct CudaSelectInputs {
  // Host values: they size the launch.
  DType dtype = DType::kFloat32;  // of logits: kFloat32 or kBFloat16
  int num_rows = 0;               // a bound, as captured
  int vocab_size = 0;
  int max_groups = 0;      // bound of *num_groups
  int max_candidates = 1;  // bound of every group's m
  // Bound of num_rows of every group that has candidates; 0 stands for
  // num_rows.
  int max_group_rows = 0;
  // Size of `candidates`: a bound of every group's first_candidate +
  // num_candidates, also where places in between are of groups that
  // CudaSample chooses for. 0 stands for max_groups * max_candidates. Where
  // max_candidates is above 64, scratch has 72 bytes for each.
  int max_total_candidates = 0;

  // Device memory.
  // Read fastest where rows begin at multiples of 16 bytes.
  const void* logits = nullptr;             // [num_rows, vocab_size]
  const int* num_groups = nullptr;          // [1]
  const CudaSelectGroup* groups = nullptr;  // [max_groups]
  const int* row_groups = nullptr;          // [num_rows]; -1: of no group
  const float* cum_log_probs = nullptr;     // [num_rows] nats; -inf: dead
  const CudaRowEdits* row_edits = nullptr;  // [num_rows], or null: none
  const TokenEdit* edits = nullptr;
};

struct CudaSelectOutputs {
  Candidate* candidates = nullptr;  // best first; a group's at first_candidate
  int* num_candidates = nullptr;    // [max_groups]  how many there are
};

// What sizes the scratch of a call.
CudaSelectBounds BoundsOf(const CudaSelectInputs& inputs);

// Bytes of scratch that CudaSelect needs, aligned to 256: those of a
// CudaSelectLayout. Nothing is kept there between calls, so it needs no
// clearing and may serve others in between.
size_t CudaSelectScratchBytes(const CudaSelectInputs& inputs);

// The largest max_group_rows with which CudaSelect enqueues what it does with
// that of `inputs`: one captured call serves groups of all these sizes, and
// none is chosen slower than with a bound of its own. There are three at most
// for inputs that differ in max_group_rows alone.
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
