// Verification on the device: what VerifyDrafts (verify.h) does on the host,
// for all sequences of a step, whose drafts may be of different lengths. Two or
// three launches; nothing goes to the host in between, and offsets, drafts and
// answers stay in device memory, so that a captured graph serves any
// composition of a batch. cuda_verify.cu says what they do.
//
// What is drawn from a row by itself (bonus, greedy and coupled tokens) has the
// bits of CudaSample's draws. What rejection decides is within rounding of the
// host's: p / q within 2e-5 of itself, and p - q within 1e-6 of p. All sums
// that decide are sums of integers, so a sequence's tokens do not depend on
// other sequences, on places, or on how the work is spread.
//
// A draft is drawn by CudaSample, with CudaDraw::purpose kDraft where it is
// verified by rejection, and kDraw where it is coupled.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "base/cuda.h"
#include "base/dtype.h"
#include "base/ids.h"
#include "kernels/logits/candidate.h"
#include "kernels/logits/cuda_row_edits.h"
#include "kernels/sample/sample.h"
#include "kernels/verify/cuda_verify_layout.h"
#include "kernels/verify/verify.h"

namespace espalier {

// One sequence's draft, and where its rows and answers are.
struct CudaVerifySequence {
  int first_row = 0;  // of num_drafts + 1 target rows
  // Of num_drafts rows that the draft was drawn from; -1: it has none.
  int first_draft_row = -1;
  int first_draft = 0;  // in `drafts`
  int num_drafts = 0;
  int first_token = 0;  // of num_drafts + 1 places for answers
  int first_beam = 0;   // what the first of these says, of candidates
  uint32_t sample = 0;
  uint32_t position = 0;  // of its first target row
  VerifyMode mode = VerifyMode::kRejection;
};

// Whether more than the temperature shapes what is drawn.
inline bool HasFilters(const SamplingParams& params) {
  return !params.greedy() && (params.min_p > 0.0f || params.top_k > 0 ||
                              params.top_p < 1.0f || params.typical_p < 1.0f);
}

struct CudaVerifyInputs {
  // Host values: they size the launches.
  DType dtype = DType::kFloat32;  // of logits: kFloat32 or kBFloat16
  int num_rows = 0;               // a bound, as captured
  int vocab_size = 0;
  int max_sequences = 0;  // bound of *num_sequences
  // What rows may ask for; less takes fewer launches.
  bool has_filters = true;     // HasFilters() of some params
  bool has_draft_rows = true;  // of some sequence

  // Device memory.
  // Target rows and rows of drafts, in any order but that of a sequence.
  const void* logits = nullptr;  // [num_rows, vocab_size]
  // [num_rows]  addresses of rows elsewhere in device memory; 0: the row is in
  // `logits`. Null: all are. A row is [vocab_size] of `dtype`, at any element's
  // alignment; it is complete before the call, and stays until that has ended.
  const uint64_t* row_addresses = nullptr;
  const int* num_sequences = nullptr;             // [1]
  const CudaVerifySequence* sequences = nullptr;  // [max_sequences]
  const int* row_sequences = nullptr;  // [num_rows] whose it is; -1: nobody's
  // A negative one ends its sequence's draft.
  const TokenId* drafts = nullptr;
  const int* row_params = nullptr;          // [num_rows]; -1: nobody's row
  const SamplingParams* params = nullptr;   // what row_params points into
  const CudaRowEdits* row_edits = nullptr;  // [num_rows], or null: none
  const TokenEdit* edits = nullptr;
  // [max_sequences], 0 before the first call, and again after each; of one
  // call at a time. Null: there are always three launches.
  unsigned* counters = nullptr;
};

// Device memory. As VerifiedTokens has it, at each sequence's first_token; or
// as candidates, as CudaSample's: their sums are the tokens' own
// log-probabilities, -inf where there is no token, and their beams first_beam
// and on. After the last token of a sequence a beam is -1.
struct CudaVerifyOutputs {
  TokenId* tokens = nullptr;
  float* log_probs = nullptr;
  int* num_accepted = nullptr;      // [max_sequences]: length - 1
  Candidate* candidates = nullptr;  // instead of all of these, unless null
};

// Bytes of scratch that CudaVerify needs, aligned to 256. Nothing is kept there
// between calls.
size_t CudaVerifyScratchBytes(const CudaVerifyInputs& inputs);

// Verifies all drafts. Enqueues on `stream` and returns; never allocates, may
// be captured.
// REQUIRES: all inputs but the logits are complete at the last barrier of the
// stream, as in a step (GridDependency::kReadsEarly).
// All rows of a sequence that exists have params.
// Errors: kInvalidArgument if a shape is impossible, as CudaSample's, or there
// are more than kMaxCudaLogitsRows sequences; kInternal if a launch is refused.
absl::Status CudaVerify(const CudaVerifyInputs& inputs,
                        const CudaVerifyOutputs& outputs, void* scratch,
                        const CudaDevice& device, cudaStream_t stream);

}  // namespace espalier
