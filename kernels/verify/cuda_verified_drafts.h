// Results of verification on the device, and the work that starts from them:
// the next draft of a sequence, and the row that verifies it. The host need not
// read the number of accepted tokens between two steps.
//
//   step N ─> CudaReportVerified ─┬─> CudaBeginDrafts ─> draft model's k steps
//             accepted, next      └─> CudaBeginRows ─> CudaPlaceDrafts ─> N+1
//
// A verification is unread if the host has not read its result. The host plans
// the step after it as if no token were accepted, with pages for all. These
// kernels advance that step by the accepted tokens.
//
// Descriptions of drafts and rows, drafted tokens, and results are in pinned
// host memory that the device maps at the same address. All else is device
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

// Writes the result of each draft that the step has verified to the address
// CudaPlacedDraft::verified, unless that is 0. The leading drafted tokens that
// equal the step's sampled or verified tokens are accepted; the host counts
// them in the same way (executor/selection_rows.h).
//   drafts      [num_drafts]
//   candidates  of the step; a draft has num_verified + 1 of them, from its
//               first_candidate on
// Errors: kInternal if the launch is refused.
absl::Status CudaReportVerified(const CudaPlacedDraft* drafts, int num_drafts,
                                const Candidate* candidates,
                                cudaStream_t stream);

// A row of the batch whose start depends on the unread verification of its
// sequence's previous draft.
struct CudaUnreadRow {
  uint64_t verified = 0;  // address of a VerifiedDraft
  int max_accepted = 0;   // tokens of the previous draft
  int first_token = 0;    // in the batch
  int num_tokens = 0;
  int first_draw = 0;
  int num_draws = 0;
  int verify_sequence = -1;  // index in CudaVerify's sequences; -1: none
};

// Adds the number of accepted tokens to the positions of the rows' tokens,
// draws and verification, and writes VerifiedDraft::next as their first token,
// also into the token record of its page.
//   rows  [num_rows]
// REQUIRES: the batch is written; the previous drafts are verified.
// Errors: kInternal if the launch is refused.
absl::Status CudaBeginRows(const CudaUnreadRow* rows, int num_rows,
                           const CudaPlacedBatch& batch, cudaStream_t stream);

// A sequence of a draft model whose start depends on the unread verification of
// its previous draft. If that draft was accepted in full, the sequence feeds
// two tokens: the draft model has not been fed the draft's last token.
struct CudaUnreadDraft {
  uint64_t verified = 0;    // address of a VerifiedDraft
  uint64_t last_token = 0;  // address of the previous draft's last token
  int max_accepted = 0;     // tokens of the previous draft
  int row = 0;
};

// Inputs of a draft model's steps. The first step has two places for tokens in
// each row, and a row that feeds one token uses the second. Later steps have
// one place.
struct CudaDraftStart {
  int* first_tokens = nullptr;        // [rows, 2]
  int* first_positions = nullptr;     // [rows, 2]
  int* first_token_tables = nullptr;  // [rows, 2]
  int* tokens = nullptr;              // [rows]
  int* positions = nullptr;           // [rows]
  CudaDraw* draws = nullptr;          // [rows]
};

// Adds the number of accepted tokens to the positions of the sequences and
// their draws, and writes VerifiedDraft::next as the token to feed, after the
// previous draft's last token if that has to be fed.
//   drafts  [num_drafts]
// REQUIRES: the inputs are written, with one token for each row; the previous
// drafts are verified.
// Errors: kInternal if the launch is refused.
absl::Status CudaBeginDrafts(const CudaUnreadDraft* drafts, int num_drafts,
                             const CudaDraftStart& start, cudaStream_t stream);

}  // namespace espalier
