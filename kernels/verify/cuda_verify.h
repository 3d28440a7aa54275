// Verification on the device: VerifyDrafts (verify.h) for all sequences of a
// step, whose drafts may have different lengths. Two or three launches, without
// a transfer to the host in between: offsets, drafts and results stay in device
// memory, so that a captured graph serves any composition of a batch. The
// kernels are described in cuda_verify.cu.
//
// Tokens that are sampled from one row (bonus, greedy and coupled tokens) have
// the bits of CudaSample. Rejection is within rounding of the host's: p / q
// within 2e-5 of itself, and p - q within 1e-6 of p. All sums that decide are
// sums of integers, so a sequence's tokens do not depend on other sequences, on
// places, or on how the work is spread.
//
// CudaSample samples the drafts, with CudaDraw::purpose kDraft for verification
// by rejection, and kDraw for coupled drafts.
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

// One sequence's draft, and the places of its rows and results.
struct CudaVerifySequence {
  int first_row = 0;  // num_drafts + 1 target rows
  // The num_drafts rows that the draft was sampled from; -1: none.
  int first_draft_row = -1;
  int first_draft = 0;  // in `drafts`
  int num_drafts = 0;
  int first_token = 0;  // num_drafts + 1 places for results
  int first_beam = 0;   // `beam` of the first candidate
  uint32_t sample = 0;
  uint32_t position = 0;  // position of its first target row
  VerifyMode mode = VerifyMode::kRejection;
};

struct CudaVerifyInputs {
  // Host values: they size the launches.
  DType dtype = DType::kFloat32;  // kFloat32 or kBFloat16
  int num_rows = 0;               // upper bound, as captured
  int vocab_size = 0;
  int max_sequences = 0;  // bound of *num_sequences
  // Bounds of the rows' features. Fewer features take fewer launches.
  bool has_filters = true;     // HasFilters() of any params
  bool has_draft_rows = true;  // any sequence has draft rows

  // Device memory.
  // Target rows and draft rows in any order; the rows of a sequence are
  // consecutive.
  const void* logits = nullptr;  // [num_rows, vocab_size]
  // [num_rows]  addresses of rows elsewhere in device memory; 0: the row is in
  // `logits`. Null: all are. A row is [vocab_size] of `dtype`, with element
  // alignment. It must be complete before the call and stay valid until the
  // call has completed.
  const uint64_t* row_addresses = nullptr;
  const int* num_sequences = nullptr;             // [1]
  const CudaVerifySequence* sequences = nullptr;  // [max_sequences]
  const int* row_sequences = nullptr;  // [num_rows]  its sequence; -1: padding
  // A negative one ends its sequence's draft.
  const TokenId* drafts = nullptr;
  const int* row_params = nullptr;          // [num_rows]; -1: padding row
  const SamplingParams* params = nullptr;   // indexed by row_params
  const CudaRowEdits* row_edits = nullptr;  // [num_rows], or null: none
  const TokenEdit* edits = nullptr;
  const uint32_t* masks = nullptr;  // [masks, NumMaskWords(vocab_size)]
  // [max_sequences], 0 before the first call, and again after each; used by one
  // call at a time. Null: every call takes three launches.
  unsigned* counters = nullptr;
};

// Device memory. The fields of VerifiedTokens, from each sequence's first_token
// on; or candidates, as from CudaSample. The sum of a candidate is its token's
// log-probability, or -inf without a token; beams count up from first_beam.
// After the last token of a sequence the beam is -1.
struct CudaVerifyOutputs {
  TokenId* tokens = nullptr;
  float* log_probs = nullptr;
  int* num_accepted = nullptr;      // [max_sequences]: length - 1
  Candidate* candidates = nullptr;  // null, or written in place of the others
};

// Returns the scratch bytes of CudaVerify, to be aligned to 256. Scratch keeps
// nothing between calls.
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
