// CudaAdvanceDrafts is bound by latency: one thread per sequence.
#include "base/cuda_launch.cuh"
#include "base/status.h"
#include "kernels/verify/cuda_draft_steps.h"

namespace espalier {
namespace {

constexpr int kAdvanceThreads = 128;
constexpr int kPlaceThreads = 32;  // drafts are of few tokens

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
    state.kept_rows[r] = -1;
    return;
  }
  state.tokens[r] = token < 0 ? 0 : token;
  ++state.positions[r];
  ++state.draws[r].position;
  if (state.kept_rows[r] >= 0) ++state.kept_rows[r];
  if (num_drafted == row.first_with_later_edits) {
    state.row_edits[r] = row.later_edits;
  }
}

// One block per draft.
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

}  // namespace espalier
