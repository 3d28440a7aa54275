// CudaAdvanceDrafts is bound by latency: one thread a sequence.
// CudaKeepDraftLogits is bound by bytes: each row is read and written once.
#include <algorithm>

#include "base/cuda_launch.cuh"
#include "base/status.h"
#include "kernels/verify/cuda_draft_steps.h"

namespace espalier {
namespace {

constexpr int kAdvanceThreads = 128;
constexpr int kPlaceThreads = 32;  // drafts are of few tokens
// Of a row of 128,256 logits each thread has eight pieces of 16 bytes.
constexpr int kCopyThreads = 256;
constexpr int kCopyBlocks = 16;  // a row

__global__ void AdvanceDrafts(CudaDraftState state, int num_rows) {
  LaunchDependents();
  GridDependencyWait();
  const int r = blockIdx.x * kAdvanceThreads + threadIdx.x;
  if (r >= num_rows) return;
  const CudaDraftRow row = state.rows[r];
  if (row.num_drafted >= row.num_tokens) return;
  const TokenId token = state.candidates[r].token;
  state.drafted[row.first_drafted + row.num_drafted * state.max_rows + r] =
      token;
  const int num_drafted = row.num_drafted + 1;
  state.rows[r].num_drafted = num_drafted;
  if (num_drafted == row.num_tokens) {
    state.tokens[r] = 0;
    state.positions[r] = 0;
    state.token_tables[r] = state.null_table;
    return;
  }
  state.tokens[r] = token < 0 ? 0 : token;
  ++state.positions[r];
  ++state.draws[r].position;
  if (num_drafted == row.first_with_later_edits) {
    state.row_edits[r] = row.later_edits;
  }
}

// A block a draft.
__global__ void __launch_bounds__(kPlaceThreads)
    PlaceDrafts(const CudaPlacedDraft* drafts, CudaPlacedBatch batch) {
  LaunchDependents();
  GridDependencyWait();
  const CudaPlacedDraft draft = drafts[blockIdx.x];
  const auto* const tokens = reinterpret_cast<const TokenId*>(draft.tokens);
  for (int i = threadIdx.x; i < draft.num_tokens; i += kPlaceThreads) {
    const TokenId token = tokens[i * draft.stride];
    if (draft.first_draft >= 0) {
      batch.verify_drafts[draft.first_draft + i] = token;
    }
    const int at = draft.first_token + i;
    const int fed = token < 0 ? 0 : token;
    batch.tokens[at] = fed;
    const int position = batch.positions[at];
    const int* const table =
        batch.tables + int64_t{batch.token_tables[at]} * batch.table_stride;
    const int64_t page = table[position / batch.page_size];
    batch.page_tokens[page * batch.page_size + position % batch.page_size] =
        fed;
  }
}

// Block x of kCopyBlocks copies its part.
__device__ void CopyRow(const float* from, float* to, int count) {
  const int first = blockIdx.x * kCopyThreads + threadIdx.x;
  constexpr int kStride = kCopyBlocks * kCopyThreads;
  const auto addresses =
      reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to);
  int num_copied = 0;
  if (addresses % sizeof(float4) == 0) {
    const int num_pieces = count / 4;
    for (int i = first; i < num_pieces; i += kStride) {
      reinterpret_cast<float4*>(to)[i] =
          reinterpret_cast<const float4*>(from)[i];
    }
    num_copied = 4 * num_pieces;
  }
  for (int i = num_copied + first; i < count; i += kStride) to[i] = from[i];
}

__global__ void __launch_bounds__(kCopyThreads)
    KeepDraftLogits(const CudaDraftRow* rows, int vocab_size,
                    const float* logits, float* kept) {
  LaunchDependents();
  GridDependencyWait();
  const CudaDraftRow row = rows[blockIdx.y];
  if (row.first_kept < 0 || row.num_drafted >= row.num_tokens) return;
  CopyRow(logits + int64_t{blockIdx.y} * vocab_size,
          kept + int64_t{row.first_kept + row.num_drafted} * vocab_size,
          vocab_size);
}

}  // namespace

absl::Status CudaAdvanceDrafts(const CudaDraftState& state, int num_rows,
                               cudaStream_t stream) {
  const unsigned blocks = (num_rows + kAdvanceThreads - 1) / kAdvanceThreads;
  return Launch(AdvanceDrafts,
                {.grid = {blocks},
                 .block = {kAdvanceThreads},
                 .dependency = GridDependency::kWritesEarlyRead},
                stream, state, num_rows);
}

absl::Status CudaPlaceDrafts(const CudaPlacedDraft* drafts, int num_drafts,
                             const CudaPlacedBatch& batch,
                             cudaStream_t stream) {
  if (num_drafts == 0) return absl::OkStatus();
  return Launch(PlaceDrafts,
                {.grid = {static_cast<unsigned>(num_drafts)},
                 .block = {kPlaceThreads},
                 .dependency = GridDependency::kWritesEarlyRead},
                stream, drafts, batch);
}

absl::Status CudaKeepDraftLogits(const CudaDraftRow* rows, int num_rows,
                                 int vocab_size, const float* logits,
                                 float* kept, cudaStream_t stream) {
  return Launch(KeepDraftLogits,
                {.grid = {kCopyBlocks, static_cast<unsigned>(num_rows)},
                 .block = {kCopyThreads}},
                stream, rows, vocab_size, logits, kept);
}

}  // namespace espalier
