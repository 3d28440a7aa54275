// Definitions that the kernels for groups of more than kMaxNarrow candidates
// share: their groups, rows and entries.
#pragma once

#include <algorithm>

#include "kernels/select/cuda_select_row.cuh"

namespace espalier::cuda_select {

// Enough threads for a row of the largest vocabularies.
constexpr int kGroupThreads = 1024;
// Blocks that process the groups in turn. More would be idle in most launches.
constexpr int kMaxGroupBlocks = 128;

__device__ inline bool IsWide(const CudaSelectGroup& group) {
  return group.num_candidates > kMaxNarrow;
}

// The group of a row, and the row within it.
struct WideRow {
  int index = -1;  // index of the group; -1: nothing to do
  int beam = 0;
  CudaSelectGroup group;

  __device__ WideRow(const Params& p, int row) {
    if (row >= p.in.num_rows) return;
    const int row_group = p.in.row_groups[row];
    if (row_group < 0) return;
    group = p.in.groups[row_group];
    beam = row - group.first_row;
    if (IsWide(group)) index = row_group;
  }
};

__device__ inline Entry* EntriesOf(const Params& p,
                                   const CudaSelectGroup& group) {
  return p.scratch.entries +
         size_t(kEntriesPerCandidate) * group.first_candidate;
}

// Calls visit(group, index) for the wide groups of this block, of `stride`.
template <typename Visit>
__device__ void ForEachWideGroup(const Params& p, int first, int stride,
                                 const Visit& visit) {
  const int num_groups = *p.in.num_groups;
  for (int g = first; g < num_groups; g += stride) {
    const CudaSelectGroup group = p.in.groups[g];
    if (IsWide(group)) visit(group, g);
  }
}

// Launch configuration of kernels with one block per group.
inline LaunchConfig ShapeOfWideGroups(const Params& p) {
  return {.grid = dim3(std::min(p.in.max_groups, kMaxGroupBlocks)),
          .block = dim3(kGroupThreads)};
}

}  // namespace espalier::cuda_select
