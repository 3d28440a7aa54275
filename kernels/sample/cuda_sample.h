// Sampling on the device: kernels/sample/sample.h for all samples of a step,
// greedy ones included, in one launch or two. A draw is a pure function of its
// row, its options and (seed, sample, position). It has the same bits among any
// other rows, at any place and however the work is spread, because all sums
// that decide it are sums of integers. It may differ from the host's draw if
// the uniform number falls within rounding of a boundary between two tokens, or
// a filter's sum within rounding of its bound. Choice by logit (greedy, top_k)
// agrees to the bit.
//
// A row costs as much as its own options need (cuda_sample.cu).
//
// All inputs are in device memory, including the number of draws, so that a
// captured graph serves any composition of a batch. Results are candidates that
// CudaUpdateBeams reads, in a group that CudaSelect skips (num_candidates 0),
// so that samples can be scheduled asynchronously.
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

// A draw of one token. Several draws may share a row, with one set of params.
struct CudaDraw {
  int row = 0;        // row of logits
  int candidate = 0;  // its place in `candidates`
  int beam = 0;       // rank in the group, copied to the candidate
  uint32_t sample = 0;
  uint32_t position = 0;  // tokens that it has generated
  RandomPurpose purpose = RandomPurpose::kDraw;
};

// The largest vocabulary for which sums of weights are exact.
inline constexpr int kMaxCudaSampleVocab = 1 << 22;

struct CudaSampleInputs {
  // Host values: they size the launch.
  DType dtype = DType::kFloat32;  // kFloat32 or kBFloat16
  int num_rows = 0;               // upper bound, as captured
  int vocab_size = 0;
  int max_draws = 0;  // bound of *num_draws

  // Device memory.
  // Read fastest where rows begin at multiples of 16 bytes.
  const void* logits = nullptr;             // [num_rows, vocab_size]
  const int* num_draws = nullptr;           // [1]
  const CudaDraw* draws = nullptr;          // [max_draws]
  const int* row_params = nullptr;          // [num_rows]; -1: no draw
  const SamplingParams* params = nullptr;   // indexed by row_params
  const float* cum_log_probs = nullptr;     // [num_rows] nats; -inf: dead
  const CudaRowEdits* row_edits = nullptr;  // [num_rows], or null: none
  const TokenEdit* edits = nullptr;
  const uint32_t* masks = nullptr;  // [masks, NumMaskWords(vocab_size)]
  // A copy of each float32 row that is sampled from, written as the row is
  // read: row r goes to row copied_rows[r] of `copies`, or nowhere if that is
  // -1. Both are set or neither. No two rows share a copy, and no copy overlaps
  // `logits`.
  float* copies = nullptr;           // [any, vocab_size], or null: none
  const int* copied_rows = nullptr;  // [num_rows]
};

// Returns the scratch bytes of CudaSample, to be aligned to 256. Scratch keeps
// nothing between calls, needs no clearing and may be shared.
size_t CudaSampleScratchBytes(const CudaSampleInputs& inputs);

// Writes candidates[draw.candidate] of every draw: the token, and the sum of
// the row's cum and the token's raw log_prob, rounded once. The token is
// kNotANumber, with a cum of -inf, if a logit is NaN. It is kNoToken if no
// token is possible or the row is dead; a dead row is not read. Enqueues on
// `stream` and returns; never allocates, may be captured.
// REQUIRES: all inputs but the logits are complete at the last barrier of the
// stream, as in a step (GridDependency::kReadsEarly).
// Errors: kInvalidArgument if a shape is impossible, rows of bfloat16 are to be
// copied, or there are more than kMaxCudaLogitsRows rows, kMaxCudaLogits logits
// or kMaxCudaSampleVocab tokens; kInternal if a launch is refused.
absl::Status CudaSample(const CudaSampleInputs& inputs, Candidate* candidates,
                        void* scratch, const CudaDevice& device,
                        cudaStream_t stream);

}  // namespace espalier
