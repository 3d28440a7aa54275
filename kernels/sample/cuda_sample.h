// Sampling on the device: what kernels/sample/sample.h does on the host, for
// all samples of a step, greedy ones among them. One launch or two. A draw is a
// pure function of its row, its options and (seed, sample, position): the same
// bits among any other rows, at any place and however the work is spread, for
// all sums that decide are sums of integers. It differs from the host's form
// where the uniform number falls within rounding of a boundary between two
// tokens, and where what a filter looks at falls within rounding of its bound;
// choice by logit (greedy, top_k) agrees to the bit.
//
// A row pays for its own options alone; cuda_sample.cu says what they cost.
//
// Everything is in device memory, also the number of draws, so that a captured
// graph serves any composition of a batch. Answers are candidates where
// CudaUpdateBeams reads them, in a group that CudaSelect leaves alone
// (num_candidates 0), so that samples run ahead.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "absl/status/status.h"
#include "base/cuda.h"
#include "base/dtype.h"
#include "kernels/logits/candidate.h"
#include "kernels/logits/cuda_row_edits.h"
#include "kernels/sample/cuda_sample_layout.h"
#include "kernels/sample/sample.h"

namespace espalier {

// One token to draw. Several may draw from one row, with one set of params.
struct CudaDraw {
  int row = 0;        // of logits
  int candidate = 0;  // its place in `candidates`
  int beam = 0;       // what its candidate says: the rank in the group
  uint32_t sample = 0;
  uint32_t position = 0;  // tokens that it has generated
  RandomPurpose purpose = RandomPurpose::kDraw;
};

// The largest vocabulary: sums of its weights are exact.
inline constexpr int kMaxCudaSampleVocab = 1 << 22;

struct CudaSampleInputs {
  // Host values: they size the launch.
  DType dtype = DType::kFloat32;  // of logits: kFloat32 or kBFloat16
  int num_rows = 0;               // a bound, as captured
  int vocab_size = 0;
  int max_draws = 0;  // bound of *num_draws

  // Device memory.
  // Read fastest where rows begin at multiples of 16 bytes.
  const void* logits = nullptr;             // [num_rows, vocab_size]
  const int* num_draws = nullptr;           // [1]
  const CudaDraw* draws = nullptr;          // [max_draws]
  const int* row_params = nullptr;          // [num_rows]; -1: no draw
  const SamplingParams* params = nullptr;   // what row_params points into
  const float* cum_log_probs = nullptr;     // [num_rows] nats; -inf: dead
  const CudaRowEdits* row_edits = nullptr;  // [num_rows], or null: none
  const TokenEdit* edits = nullptr;
  // A copy of each float32 row that is drawn from, made as it is read: row r
  // becomes row copied_rows[r] of `copies`, or none where that is -1. Both are
  // there or neither; rows have places of their own, none of them in `logits`.
  float* copies = nullptr;           // [any, vocab_size], or null: none
  const int* copied_rows = nullptr;  // [num_rows]
};

// Bytes of scratch that CudaSample needs, aligned to 256. Nothing is kept there
// between calls, so it needs no clearing and may serve others in between.
size_t CudaSampleScratchBytes(const CudaSampleInputs& inputs);

// Writes candidates[draw.candidate] of every draw: its token, and the row's cum
// and the token's raw log_prob added up in one rounding. The token is
// kNotANumber, with a cum of -inf, where a logit is NaN, and kNoToken where no
// token is possible or the row is dead, which is not read. Enqueues on `stream`
// and returns; never allocates, may be captured.
// REQUIRES: all inputs but the logits are complete at the last barrier of the
// stream, as in a step (GridDependency::kReadsEarly).
// Errors: kInvalidArgument if a shape is impossible, rows of bfloat16 are to be
// kept, or there are more than kMaxCudaLogitsRows rows, kMaxCudaLogits or
// kMaxCudaSampleVocab tokens; kInternal if a launch is refused.
absl::Status CudaSample(const CudaSampleInputs& inputs, Candidate* candidates,
                        void* scratch, const CudaDevice& device,
                        cudaStream_t stream);

}  // namespace espalier
