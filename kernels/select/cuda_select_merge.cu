// The choice among a group's rows once they are read, by one block, for groups
// of up to kMaxNarrow candidates (cuda_select.cu).
#include <algorithm>

#include "base/status.h"
#include "kernels/select/cuda_select_cut.cuh"
#include "kernels/select/cuda_select_exact.cuh"
#include "kernels/select/cuda_select_finish.cuh"
#include "kernels/select/cuda_select_group.cuh"
#include "kernels/select/cuda_select_steps.h"

namespace espalier::cuda_select {
namespace {

// Gathers the edited tokens of rows that have many. Not inlined, for the reason
// of MergeExact.
template <typename T>
__device__ __noinline__ void GatherManyEdited(const Params& p, bool by_logit,
                                              MergeShared& shared) {
  const CudaSelectGroup group = p.in.groups[blockIdx.x];
  const float cut = CutScore(shared.cut);
#pragma unroll 1
  for (int beam = 0; beam < group.num_rows; ++beam) {
    const CudaRowEdits& edits = p.in.row_edits[group.first_row + beam];
    if (edits.end - edits.begin <= kManyEdits) continue;
    const RowView<T> row(p, group, beam, by_logit);
    if (!row.alive()) continue;
    GatherEdited(row, cut, threadIdx.x, blockDim.x, [&](const Entry& entry) {
      const int i = atomicAdd(&shared.num_entries, 1);
      if (i < kMaxEntries) shared.entries[i] = entry;
    });
  }
}

// Lists the quarters that reach the cut, and appends edited tokens that do.
//   has_batch  summed.batch has the first tiles of the warp's first row
template <typename T, typename Append>
__device__ void FindQuarters(const Params& p, const CudaSelectGroup& group,
                             bool by_logit, bool has_batch, Summed& summed,
                             float cut, MergeShared& shared,
                             const Append& append) {
  const int lane = threadIdx.x % kWarpSize;
  ForEachRow(group, [&](int beam) {
    const RowStats stats = summed.StatsAt(p, group, beam);
    const RowView<T> row(p, group, beam, by_logit, stats);
    if (!row.alive()) return;
    const int num_edits = row.row_edits().end - row.row_edits().begin;
    if (num_edits > 0 && num_edits <= kManyEdits) {
      GatherEdited(row, cut, lane, kWarpSize, append);
    }
    if (row.is_allow_list()) return;
    const float floor = row.Floor(cut);
#pragma unroll 1
    for (int first = lane; first < p.tiles; first += kBatchStride) {
      if (!has_batch || beam >= NumWarps() || first != lane) {
        summed.batch = TileBatch(row.maxima(), first, p.tiles);
      }
      unsigned reached = 0;  // four bits a tile
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const float4& q = summed.batch.maxima[i];
        if (q.x >= floor) reached |= 1u << (4 * i);
        if (q.y >= floor) reached |= 2u << (4 * i);
        if (q.z >= floor) reached |= 4u << (4 * i);
        if (q.w >= floor) reached |= 8u << (4 * i);
      }
      if (reached == 0) continue;
      int i = atomicAdd(&shared.num_found, __popc(reached));
#pragma unroll 1
      for (; reached != 0 && i < kMaxFound; reached &= reached - 1, ++i) {
        const int bit = __ffs(reached) - 1;
        const int quarter =
            (first + bit / kQuarters * kWarpSize) * kQuarters + bit % kQuarters;
        shared.found[i] = {stats, floor, beam, quarter};
      }
    }
  });
}

// Reads the listed quarters again, several at a time.
template <typename T, typename Policy, typename Append>
__device__ void ReadQuarters(const Params& p, const CudaSelectGroup& group,
                             bool by_logit, float cut,
                             const MergeShared& shared, const Append& append) {
  constexpr int kWarps = Policy::kThreads / kWarpSize;
  constexpr int kAtOnce = Policy::kQuartersAtOnce;
  const int num_found = min(shared.num_found, kMaxFound);
  const auto row_of = [&](const Found& found) {
    return RowView<T>(p, group, found.beam, by_logit, found.stats);
  };
#pragma unroll 1
  for (int base = threadIdx.x / kWarpSize; base < num_found;
       base += kWarps * kAtOnce) {
    // Past the last found quarter the last one is loaded again, so that no load
    // depends on a branch.
    LaneLogits<LogitOf<T>> logits[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const Found& found = shared.found[min(base + i * kWarps, num_found - 1)];
      logits[i] = LaneLogits<LogitOf<T>>(row_of(found), found.quarter);
    }
    AboveThreshold reached;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (base + i * kWarps >= num_found) continue;
      const Found& found = shared.found[base + i * kWarps];
      const RowView<T> row = row_of(found);
#pragma unroll
      for (int j = 0; j < kPerLane; ++j) {
        const float x = logits[i].value(row, j);
        if (!(x >= found.floor)) continue;
        reached.Add(i * kPerLane + j, x);
      }
    }
    reached.ForEach([&](int i, bool at_hand) {
      const Found& found = shared.found[base + i / kPerLane * kWarps];
      const RowView<T> row = row_of(found);
      const int token = LaneToken<LogitOf<T>>(found.quarter, i % kPerLane);
      AppendIfAbove(row, token, at_hand ? reached.logit : row.Logit(token), cut,
                    append);
    });
  }
}

// The m-th largest of the maxima of all quarters; 0 if there are fewer.
template <typename T>
__device__ ScoreKey CutByQuarters(const Params& p, const CudaSelectGroup& group,
                                  bool by_logit, MergeShared& shared) {
  return KthLargest(
      [&](const auto& add) {
#pragma unroll 1
        for (int beam = 0; beam < group.num_rows; ++beam) {
          const RowView<T> row(p, group, beam, by_logit);
          if (!row.alive() || row.is_allow_list()) continue;
#pragma unroll 1
          for (int i = threadIdx.x; i < p.tiles * kQuarters; i += blockDim.x) {
            const float max = row.maxima()[i];
            if (!(max > MinusInf())) continue;
            const float score = row.Score(max);
            if (score > MinusInf()) add(MakeScoreKey(score, 0), 1);
          }
        }
      },
      group.num_candidates, kScoreBit, shared.exact.digits);
}

// The m-th best of the entries that are kept. REQUIRES: there are more.
__device__ inline ScoreKey CutByEntries(int m, MergeShared& shared) {
  return KthLargest(
      [&](const auto& add) {
        for (int i = threadIdx.x; i < kMaxEntries; i += blockDim.x) {
          add(shared.entries[i].key, 1);
        }
      },
      m, kScoreBit, shared.exact.digits);
}

// GatherEntries for rows with masks, where fewer than m of the maxima have a
// legal token, so that there is no threshold: one row of several, or a few
// quarters, have most of the legal tokens. Begins after FindQuarters. Raises
// the threshold until what reaches it is kept, if ties let it. Not inlined, for
// the reason of MergeExact.
template <typename T, typename Policy>
__device__ __noinline__ void GatherWithoutCut(const Params& p, bool by_logit,
                                              MergeShared& shared) {
  const CudaSelectGroup group = p.in.groups[blockIdx.x];
  const auto append = [&](const Entry& entry) {
    const int i = atomicAdd(&shared.num_entries, 1);
    if (i < kMaxEntries) shared.entries[i] = entry;
  };
  ScoreKey cut = 0;
  if (shared.num_found >= group.num_candidates) {
    cut = CutByQuarters<T>(p, group, by_logit, shared);
  }
  while (true) {
    if (cut != 0) {
      if (threadIdx.x == 0) {
        shared.cut = static_cast<uint32_t>(cut >> kScoreBit);
        shared.num_found = shared.num_entries = 0;
      }
      __syncthreads();
      Summed summed;
      const int warp = threadIdx.x / kWarpSize;
      if (warp < group.num_rows) {
        summed.stats = p.scratch.stats[group.first_row + warp];
      }
      FindQuarters<T>(p, group, by_logit, /*has_batch=*/false, summed,
                      CutScore(shared.cut), shared, append);
      GatherManyEdited<T>(p, by_logit, shared);
      __syncthreads();
    }
    if (shared.num_found > kMaxFound) return;
    ReadQuarters<T, Policy>(p, group, by_logit, CutScore(shared.cut), shared,
                            append);
    __syncthreads();
    if (shared.num_entries <= kMaxEntries) return;
    const ScoreKey next = CutByEntries(group.num_candidates, shared);
    if (next >> kScoreBit <= shared.cut) return;
    cut = next;
    __syncthreads();
  }
}

// Gathers all elements that reach the cut.
template <typename T, typename Policy>
__device__ void GatherEntries(const Params& p, const CudaSelectGroup& group,
                              bool by_logit, Summed& summed,
                              MergeShared& shared) {
  const float cut = CutScore(shared.cut);
  const auto append = [&](const Entry& entry) {
    const int i = atomicAdd(&shared.num_entries, 1);
    if (i < kMaxEntries) shared.entries[i] = entry;
  };
  FindQuarters<T>(p, group, by_logit, /*has_batch=*/true, summed, cut, shared,
                  append);
  if (p.in.row_edits != nullptr && __syncthreads_or(summed.many_edits)) {
    GatherManyEdited<T>(p, by_logit, shared);
  }
  __syncthreads();
  if constexpr (kIsMasked<T>) {
    if (shared.cut == 0) {
      return GatherWithoutCut<T, Policy>(p, by_logit, shared);
    }
  }
  ReadQuarters<T, Policy>(p, group, by_logit, cut, shared, append);
  __syncthreads();
}

template <typename T, typename Policy>
__global__ __launch_bounds__(
    Policy::kThreads,
    Policy::kMinBlocks) void MergeGroups(const __grid_constant__ Params p) {
  __shared__ MergeShared shared;
  LaunchDependents();
  Clear(shared);
  __syncthreads();  // for warps that come to the counters without a barrier
  const CudaSelectGroup group = p.in.groups[blockIdx.x];
  const int num_groups = *p.in.num_groups;
  GridDependencyWait();
  if (static_cast<int>(blockIdx.x) >= num_groups) return;
  const int m = group.num_candidates;
  if (m > kMaxNarrow || m < 1) return;
  const Mode mode = ModeOf<T>(p, group);
  const bool by_logit = mode == kByLogit;
  Summed summed = SumRows<T>(p, group, by_logit);
  if (p.in.row_edits != nullptr)
    ExcludeEditedTokens<T>(p, group, by_logit, summed);
  if (mode == kExact) return MergeExact<T>(p, blockIdx.x, shared);
  // Masks may leave one row of several with all elements: then its own maxima
  // must be m.
  if (!kIsMasked<T> && m <= kMaxFew) {
    FindThreshold<Policy, kFewMaxima>(p, group, summed, shared);
  } else {
    FindThreshold<Policy, kMaxima>(p, group, summed, shared);
  }
  GatherEntries<T, Policy>(p, group, by_logit, summed, shared);
  if (shared.num_found > kMaxFound) {
    return MergeExact<T>(p, blockIdx.x, shared);
  }
  FinishGroup<T>(p, group, blockIdx.x, by_logit, shared);
}

template <typename T, typename Policy>
absl::Status LaunchMerge(const Params& p, cudaStream_t stream) {
  return Launch(MergeGroups<T, Policy>,
                {.grid = dim3(p.in.max_groups),
                 .block = dim3(Policy::kThreads),
                 .dependency = GridDependency::kReadsEarly},
                stream, p);
}

template <typename T>
absl::Status LaunchMerge(const Params& p, const CudaDevice& device,
                         cudaStream_t stream) {
  const bool few = p.in.max_groups <= device.num_sms;
  return few ? LaunchMerge<T, FewGroups>(p, stream)
             : LaunchMerge<T, ManyGroups>(p, stream);
}

}  // namespace

absl::Status MergeNarrowGroups(const Params& p, const CudaDevice& device,
                               cudaStream_t stream) {
  return ByRowType(
      p.in, [&]<typename T>() { return LaunchMerge<T>(p, device, stream); });
}

}  // namespace espalier::cuda_select
