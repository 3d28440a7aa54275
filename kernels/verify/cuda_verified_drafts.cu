// All of these are bound by latency: one thread per sequence, or some.
#include "base/cuda_launch.cuh"
#include "base/status.h"
#include "kernels/verify/cuda_verified_drafts.h"

namespace espalier {
namespace {

constexpr int kThreads = 32;  // drafts and rows are of few tokens

LaunchConfig ThreadEach(int count, GridDependency dependency) {
  const unsigned blocks = (count + kThreads - 1) / kThreads;
  return {.grid = {blocks}, .block = {kThreads}, .dependency = dependency};
}

__global__ void __launch_bounds__(kThreads)
    ReportVerified(const CudaPlacedDraft* drafts, int num_drafts,
                   const Candidate* candidates) {
  LaunchDependents();
  GridDependencyWait();
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= num_drafts) return;
  const CudaPlacedDraft draft = drafts[i];
  if (draft.verified == 0) return;
  const auto* const tokens = reinterpret_cast<const TokenId*>(draft.tokens);
  const Candidate* const said = candidates + draft.first_candidate;
  VerifiedDraft verified = {.num_accepted = 0, .next = said[0].token};
  while (verified.num_accepted < draft.num_verified &&
         verified.next == tokens[verified.num_accepted * draft.stride]) {
    const Candidate next = said[verified.num_accepted + 1];
    if (next.beam < 0) break;  // end of the verified tokens
    ++verified.num_accepted;
    verified.next = next.token;
  }
  *reinterpret_cast<VerifiedDraft*>(draft.verified) = verified;
}

__device__ VerifiedDraft Read(uint64_t address, int max_accepted) {
  return Within(*reinterpret_cast<const VerifiedDraft*>(address), max_accepted);
}

// One block per row.
__global__ void __launch_bounds__(kThreads)
    BeginRows(const CudaUnreadRow* rows, CudaPlacedBatch batch) {
  LaunchDependents();
  GridDependencyWait();
  const CudaUnreadRow row = rows[blockIdx.x];
  const auto [num_accepted, next] = Read(row.verified, row.max_accepted);
  for (int i = threadIdx.x; i < row.num_tokens; i += kThreads) {
    const int at = row.first_token + i;
    const int position = batch.positions[at] + num_accepted;
    batch.positions[at] = position;
    if (i > 0) continue;
    batch.tokens[at] = next;
    const int* const table =
        batch.tables + int64_t{batch.token_tables[at]} * batch.table_stride;
    const int64_t page = table[position / batch.page_size];
    batch.page_tokens[page * batch.page_size + position % batch.page_size] =
        next;
  }
  for (int i = threadIdx.x; i < row.num_draws; i += kThreads) {
    batch.draws[row.first_draw + i].position += num_accepted;
  }
  if (threadIdx.x == 0 && row.verify_sequence >= 0) {
    batch.verify_sequences[row.verify_sequence].position += num_accepted;
  }
}

__global__ void __launch_bounds__(kThreads)
    BeginDrafts(const CudaUnreadDraft* drafts, int num_drafts,
                CudaDraftStart start) {
  LaunchDependents();
  GridDependencyWait();
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= num_drafts) return;
  const CudaUnreadDraft draft = drafts[i];
  const auto [num_accepted, next] = Read(draft.verified, draft.max_accepted);
  const int row = draft.row;
  const int last = 2 * row + 1;
  const int position = start.positions[row] + num_accepted;
  start.positions[row] = position;
  start.tokens[row] = next;
  start.draws[row].position += num_accepted;
  start.first_positions[last] = position;
  start.first_tokens[last] = next;
  if (num_accepted < draft.max_accepted) return;
  start.first_positions[last - 1] = position - 1;
  start.first_tokens[last - 1] =
      max(*reinterpret_cast<const TokenId*>(draft.last_token), 0);
  start.first_token_tables[last - 1] = start.first_token_tables[last];
}

}  // namespace

absl::Status CudaReportVerified(const CudaPlacedDraft* drafts, int num_drafts,
                                const Candidate* candidates,
                                cudaStream_t stream) {
  if (num_drafts == 0) return absl::OkStatus();
  return Launch(ReportVerified,
                ThreadEach(num_drafts, GridDependency::kWaitsFirst), stream,
                drafts, num_drafts, candidates);
}

absl::Status CudaBeginRows(const CudaUnreadRow* rows, int num_rows,
                           const CudaPlacedBatch& batch, cudaStream_t stream) {
  if (num_rows == 0) return absl::OkStatus();
  return Launch(BeginRows,
                {.grid = {static_cast<unsigned>(num_rows)},
                 .block = {kThreads},
                 .dependency = GridDependency::kWritesEarlyRead},
                stream, rows, batch);
}

absl::Status CudaBeginDrafts(const CudaUnreadDraft* drafts, int num_drafts,
                             const CudaDraftStart& start, cudaStream_t stream) {
  if (num_drafts == 0) return absl::OkStatus();
  return Launch(BeginDrafts,
                ThreadEach(num_drafts, GridDependency::kWritesEarlyRead),
                stream, drafts, num_drafts, start);
}

}  // namespace espalier
