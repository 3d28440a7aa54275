// Drafting on the device: the kernels between two steps of a draft model, so
// that it drafts several tokens of each sequence without the host.
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

// A sequence that drafts, or a padding row, which drafts 0 tokens.
struct CudaDraftRow {
  int num_tokens = 0;   // number to draft
  int num_drafted = 0;  // so far; counted on the device
  // Its edits from the token with this index on; -1: its edits do not change.
  int first_with_later_edits = -1;
  CudaRowEdits later_edits = {};
  // Its first token is written to drafted[first_drafted + its row].
  int first_drafted = 0;
};

struct CudaDraftState {
  CudaDraftRow* rows = nullptr;  // [num_rows]
  // [num_rows]  the next token that each row feeds, and its draw
  int* tokens = nullptr;
  int* positions = nullptr;
  int* token_tables = nullptr;
  CudaDraw* draws = nullptr;
  CudaRowEdits* row_edits = nullptr;
  // [num_rows]  the places of the copies of its tokens' logits, one after the
  // other (CudaSampleInputs::copied_rows); -1: no copy.
  int* kept_rows = nullptr;
  // [num_rows]  written by CudaSample
  const Candidate* candidates = nullptr;
  // [runs, tokens, max_rows]  pinned host memory: the drafted tokens
  TokenId* drafted = nullptr;

  // Values.
  int max_rows = 0;
  int null_table = 0;  // for rows that have drafted all their tokens
};

// Rows that continue feed their last token at the next position, 0 if it could
// not be sampled. The place of their logits' copy advances by one row. Other
// rows feed token 0 at position 0 of the null table, without a copy (-1).
// Errors: kInternal if the launch is refused.
absl::Status CudaAdvanceDrafts(const CudaDraftState& state, int num_rows,
                               cudaStream_t stream);

// A draft that was sampled on the device, and its place in the batch that
// verifies it.
struct CudaPlacedDraft {
  // Address of const TokenId in pinned host memory: token i is tokens[i *
  // stride].
  uint64_t tokens = 0;
  int stride = 1;
  int num_tokens = 0;
  int first_token = 0;   // in the batch
  int first_draft = -1;  // index in CudaVerify's drafts; -1: not read by it
  // Address of the VerifiedDraft to write (cuda_verified_drafts.h); 0: none. It
  // is computed from num_verified + 1 candidates of the step.
  uint64_t verified = 0;
  int first_candidate = 0;
  int num_verified = 0;
};

// The batch, and the pages that its tokens are written to, as in CudaBeamState
// and CudaVerifyInputs.
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

// Writes the tokens of drafts into the batch, and into the token records of
// their pages. A token that could not be sampled is fed as 0.
//   drafts  [num_drafts]  pinned host memory
// REQUIRES: the drafts are sampled and the rest of the batch is written.
absl::Status CudaPlaceDrafts(const CudaPlacedDraft* drafts, int num_drafts,
                             const CudaPlacedBatch& batch, cudaStream_t stream);

}  // namespace espalier
