// What verification says of drafts, on the device, and what begins after it
// there: the next draft of a sequence, and the row that verifies that. Between
// two steps the host is not asked how many drafted tokens were accepted.
//
//   step N ─> CudaReportVerified ─┬─> CudaBeginDrafts ─> draft model's k steps
//             accepted, next      └─> CudaBeginRows ─> CudaPlaceDrafts ─> N+1
//
// The host lays out what follows as if nothing were accepted, with pages for
// all; these kernels move it on by what was.
//
// Descriptions of drafts and rows, and what is said of drafts, are in pinned
// host memory that the device sees at the same address; all else is device
// memory. Nothing here allocates or waits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "base/ids.h"
#include "kernels/logits/candidate.h"
#include "kernels/sample/cuda_sample.h"
#include "kernels/verify/cuda_draft_steps.h"
#include "kernels/verify/cuda_verify.h"
#include "kernels/verify/verified_draft.h"

namespace espalier {

// Of drafts that the step has verified: goes along what their rows of logits
// have drawn, or rejection has answered, while that is the draft, as the host
// does (executor/selection_rows.h); and writes it to CudaPlacedDraft::verified
// of those that ask.
//   drafts      [num_drafts]
//   candidates  of the step
// Errors: kInternal if the launch is refused.
absl::Status CudaReportVerified(const CudaPlacedDraft* drafts, int num_drafts,
                                const Candidate* candidates,
                                cudaStream_t stream);

// A row of a batch that begins where verification of the draft before ends.
struct CudaUnreadRow {
  uint64_t verified = 0;  // of const VerifiedDraft*
  int max_accepted = 0;
  int first_token = 0;  // of the batch
  int num_tokens = 0;
  int first_draw = 0;
  int num_draws = 0;
  int verify_sequence = -1;  // what CudaVerify reads; -1: nothing of it
};

// Moves rows on: positions, numbers of tokens, and the first token.
//   rows  [num_rows]
// REQUIRES: the batch is there; the drafts before are verified.
// Errors: kInternal if the launch is refused.
absl::Status CudaBeginRows(const CudaUnreadRow* rows, int num_rows,
                           const CudaPlacedBatch& batch, cudaStream_t stream);

// A sequence of a draft model that begins there. Two tokens are fed where all
// of the last draft was accepted, whose own last token was not fed.
struct CudaUnreadDraft {
  uint64_t verified = 0;    // of const VerifiedDraft*
  uint64_t last_token = 0;  // of const TokenId*: the last of the draft before
  int max_accepted = 0;
  int row = 0;
};

// The inputs of a draft model's step: of its first one two a row.
struct CudaDraftStart {
  int* first_tokens = nullptr;        // [rows, 2]
  int* first_positions = nullptr;     // [rows, 2]
  int* first_token_tables = nullptr;  // [rows, 2]
  int* tokens = nullptr;              // [rows]
  int* positions = nullptr;           // [rows]
  CudaDraw* draws = nullptr;          // [rows]
};

//   drafts  [num_drafts]
// REQUIRES: the inputs are there, of one token a row; the drafts before are
// verified.
// Errors: kInternal if the launch is refused.
absl::Status CudaBeginDrafts(const CudaUnreadDraft* drafts, int num_drafts,
                             const CudaDraftStart& start, cudaStream_t stream);

}  // namespace espalier
