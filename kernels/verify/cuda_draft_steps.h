// Drafting on the device: what is between two steps of a draft model, so that
// it drafts several tokens of each sequence without the host.
//
//   forward pass ─> CudaSample ─> CudaAdvanceDrafts ─┐
//        ^     a token, and its row    the next      │
//        │     of logits to its place  inputs        │
//        └───────────────────────────────────────────┘
//
// All memory is device memory unless it says otherwise. Nothing here allocates
// or waits; all of it may be captured.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "base/ids.h"
#include "kernels/logits/candidate.h"
#include "kernels/logits/cuda_row_edits.h"
#include "kernels/sample/cuda_sample.h"
#include "kernels/verify/cuda_verify.h"

namespace espalier {

// A sequence that drafts; or a row of nobody, which drafts 0 tokens.
struct CudaDraftRow {
  int num_tokens = 0;   // to draft
  int num_drafted = 0;  // counted here
  // Its edits from the token with this number on; -1: they stay what they are.
  int first_with_later_edits = -1;
  CudaRowEdits later_edits = {};
  // What it draws first goes to drafted[first_drafted + its row].
  int first_drafted = 0;
};

struct CudaDraftState {
  CudaDraftRow* rows = nullptr;  // [num_rows]
  // [num_rows]  what each feeds next, and draws
  int* tokens = nullptr;
  int* positions = nullptr;
  int* token_tables = nullptr;
  CudaDraw* draws = nullptr;
  CudaRowEdits* row_edits = nullptr;
  // [num_rows]  where the rows of logits of their tokens go, one after the
  // other (CudaSampleInputs::copied_rows); -1: nowhere.
  int* kept_rows = nullptr;
  // [num_rows]  as CudaSample wrote them
  const Candidate* candidates = nullptr;
  // [runs, tokens, max_rows]  pinned host memory: what was drawn
  TokenId* drafted = nullptr;

  // Values.
  int max_rows = 0;
  int null_table = 0;  // of rows that have drafted all their tokens
};

// Rows that go on feed what they have drawn, at the next position; a token that
// is none as 0; the place that their logits are copied to moves on by a row.
// Others feed token 0 at position 0 of the null table, and are copied nowhere
// (-1).
// Errors: kInternal if the launch is refused.
absl::Status CudaAdvanceDrafts(const CudaDraftState& state, int num_rows,
                               cudaStream_t stream);

// A draft that was drawn on the device, and its place in the batch that
// verifies it.
struct CudaPlacedDraft {
  // Of const TokenId*, in pinned host memory: token i is tokens[i * stride].
  uint64_t tokens = 0;
  int stride = 1;
  int num_tokens = 0;
  int first_token = 0;   // of the batch
  int first_draft = -1;  // of what CudaVerify reads; -1: it reads nothing of it
  // Where it is to be said what became of it (cuda_verified_drafts.h), of
  // VerifiedDraft*; 0: nowhere. That follows from candidates of the step from
  // the first one on, of one more than there are tokens to verify.
  uint64_t verified = 0;
  int first_candidate = 0;
  int num_verified = 0;
};

// The batch, and the pages that it feeds: as CudaBeamState and CudaVerifyInputs
// have them.
struct CudaPlacedBatch {
  int* tokens = nullptr;
  int* positions = nullptr;
  const int* token_tables = nullptr;
  const int* tables = nullptr;
  int* page_tokens = nullptr;
  CudaDraw* draws = nullptr;
  TokenId* verify_drafts = nullptr;
  CudaVerifySequence* verify_sequences = nullptr;

  // Values.
  int table_stride = 0;
  int page_size = 1;
};

// Writes the tokens of drafts into the batch, and into what is known of the
// pages that they are fed to. One that is none is fed as 0.
//   drafts  [num_drafts]  pinned host memory
// REQUIRES: they are drawn; the rest of the batch is there.
absl::Status CudaPlaceDrafts(const CudaPlacedDraft* drafts, int num_drafts,
                             const CudaPlacedBatch& batch, cudaStream_t stream);

}  // namespace espalier
