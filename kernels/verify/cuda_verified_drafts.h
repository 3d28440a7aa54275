// Results of verification on the device, and the work that starts from them:
// the next draft of a sequence, and the row that verifies it. The host need not
// read the number of accepted tokens between two steps.
//
//   step N ─> CudaReportVerified ─┬─> CudaBeginDrafts ─> draft model's k steps
//             accepted, next      └─> CudaBeginRows ─> CudaPlaceDrafts ─> N+1
//
// The host plans the following step as if no token were accepted, with pages
// for all. These kernels advance it by the accepted tokens.
//
// Descriptions of drafts and rows, and results, are in pinned host memory that
// the device maps at the same address. All else is device memory. Nothing here
// allocates or waits.
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

// Computes the results of drafts that the step has verified. Walks the sampled
// or verified tokens as long as they match the draft, as the host does
// (executor/selection_rows.h), and writes CudaPlacedDraft::verified unless it
// is 0.
//   drafts      [num_drafts]
//   candidates  candidates of the step
// Errors: kInternal if the launch is refused.
absl::Status CudaReportVerified(const CudaPlacedDraft* drafts, int num_drafts,
                                const Candidate* candidates,
                                cudaStream_t stream);

// A row that starts after verification of its sequence's previous draft.
struct CudaUnreadRow {
  uint64_t verified = 0;  // address of a VerifiedDraft
  int max_accepted = 0;
  int first_token = 0;  // in the batch
  int num_tokens = 0;
  int first_draw = 0;
  int num_draws = 0;
  int verify_sequence = -1;  // index in CudaVerify's sequences; -1: none
};

// Advances rows: positions, numbers of tokens, and the first token.
//   rows  [num_rows]
// REQUIRES: the batch is written; the previous drafts are verified.
// Errors: kInternal if the launch is refused.
absl::Status CudaBeginRows(const CudaUnreadRow* rows, int num_rows,
                           const CudaPlacedBatch& batch, cudaStream_t stream);

// A sequence of a draft model that starts there. It feeds two tokens if all of
// the previous draft was accepted, whose last token has not been fed.
struct CudaUnreadDraft {
  uint64_t verified = 0;    // address of a VerifiedDraft
  uint64_t last_token = 0;  // address of the previous draft's last token
  int max_accepted = 0;
  int row = 0;
};

// The inputs of a draft model's step. The first step has two tokens a row.
struct CudaDraftStart {
  int* first_tokens = nullptr;        // [rows, 2]
  int* first_positions = nullptr;     // [rows, 2]
  int* first_token_tables = nullptr;  // [rows, 2]
  int* tokens = nullptr;              // [rows]
  int* positions = nullptr;           // [rows]
  CudaDraw* draws = nullptr;          // [rows]
};

//   drafts  [num_drafts]
// REQUIRES: the inputs are written, with one token a row; the previous drafts
// are verified.
// Errors: kInternal if the launch is refused.
absl::Status CudaBeginDrafts(const CudaUnreadDraft* drafts, int num_drafts,
                             const CudaDraftStart& start, cudaStream_t stream);

}  // namespace espalier
