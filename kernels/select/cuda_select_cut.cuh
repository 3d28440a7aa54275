// The first half of choosing a group by one block: the softmax of its rows, the
// maxima of their parts, and from these a threshold that about m elements
// reach. These elements are gathered in cuda_select_merge.cu or
// cuda_select_cluster.cu and ranked in cuda_select_finish.cuh.
#pragma once

#include <algorithm>

#include "kernels/select/cuda_select_exact.cuh"
#include "kernels/select/cuda_select_group.cuh"

namespace espalier::cuda_select {

// Maxima that the threshold is chosen from, each of a part of the group. With
// four times m of them, 1.15 m elements are expected to reach it.
constexpr int kFewMaxima = 64;
constexpr int kMaxFew = kFewMaxima / 4;  // m
constexpr int kMaxima = 4 * kMaxNarrow;
// Capacity of a block; each of its threads ranks at most one entry.
constexpr int kMaxEntries = 256;
constexpr int kMaxFound = 256;
// Edits that a row's warp applies by itself. Longer lists are applied by the
// whole block, row by row.
constexpr int kManyEdits = 256;

// Block sizes for merging. The choice changes no bit of the result: one warp
// sums a row, and the threshold only decides which elements are read. Most of
// the work is the same few hundred instructions in every warp that has a row or
// a quarter.

// Up to one group for each multiprocessor: blocks do not share one, so the
// longest path of a thread decides.
struct FewGroups {
  // Sixteen rows at once. 256 threads take 5 us longer for m = 64, because each
  // compares twice as much for the threshold and the ranks.
  static constexpr int kThreads = 512;
  // With up to 128 registers a thread the maxima of a row fit beside all else;
  // with 64 some spill, which costs up to 5 us.
  static constexpr int kMinBlocks = 1;
  // Quarters that a warp has in flight: all of them, for m up to 24. Four
  // instead of two, or one, take 0.3 us longer.
  static constexpr int kQuartersAtOnce = 2;
};

// More groups: throughput decides, and 512 threads, of which more wait for the
// others, take 10 % longer.
struct ManyGroups {
  static constexpr int kThreads = 256;
  static constexpr int kMinBlocks = 2;       // they wait for memory in turn
  static constexpr int kQuartersAtOnce = 4;  // as many in a block as above
};

// A quarter whose maximum reaches the threshold, and its row.
struct Found {
  RowStats stats;
  float floor;  // lowest logit to consider
  int beam;
  int quarter;
};

struct MergeShared {
  alignas(16) uint32_t maxima[kMaxima];  // ordered scores
  uint32_t cut;
  int num_found;
  Found found[kMaxFound];
  int num_entries;
  Entry entries[kMaxEntries];
  int num_left;  // entries left, in kByLogit
  // The last chosen entry, and the first that is not chosen.
  Entry last;
  ScoreKey next;
  // For MergeExact.
  ExactShared exact;
  ScoreKey keys[2][2 * kMaxNarrow];
};

// All threads. Needs a barrier after it.
__device__ inline void Clear(MergeShared& shared) {
  if (threadIdx.x == 0) {
    shared.cut = 0xFFFFFFFFu;
    shared.num_found = shared.num_entries = shared.num_left = 0;
    shared.next = 0;
    shared.last.key = 0;
  }
  for (int i = threadIdx.x; i < kMaxima; i += blockDim.x) {
    shared.maxima[i] = 0;
  }
}

// Returns the number of rows processed at once.
__device__ inline int NumWarps() { return blockDim.x / kWarpSize; }

// A warp's statistics once the rows are summed.
struct Summed {
  // For its first row; other rows are in `stats`.
  RowStats stats;
  TileBatch batch;
  // A lane's best scores among first quarters, second quarters, and so on.
  QuarterMaxima own;
  bool edited = false;      // a row has edits but is no allow list
  bool many_edits = false;  // a row has more than kManyEdits

  __device__ RowStats StatsAt(const Params& p, const CudaSelectGroup& group,
                              int beam) const {
    return beam < NumWarps() ? stats : p.scratch.stats[group.first_row + beam];
  }
};

// Calls visit(beam) for this warp's rows.
template <typename Visit>
__device__ void ForEachRow(const CudaSelectGroup& group, const Visit& visit) {
#pragma unroll 1
  for (int beam = threadIdx.x / kWarpSize; beam < group.num_rows;
       beam += NumWarps()) {
    visit(beam);
  }
}

template <typename T>
__device__ void AddScores(const RowView<T>& row, const QuarterMaxima& logits,
                          QuarterMaxima& scores) {
  if (!row.alive()) return;
  scores.Add({row.Score(logits.best.x), row.Score(logits.best.y),
              row.Score(logits.best.z), row.Score(logits.best.w)});
}

// The best scores of a row that is an allow list, from its first edits. Not
// inlined and without references, so that other rows stay in registers.
template <typename T>
__device__ __noinline__ float4 BestEditedScores(RowView<T> row) {
  QuarterMaxima best;
  if (!row.alive()) return best.best;
  const int lane = threadIdx.x % kWarpSize;
  const CudaRowEdits edits = row.row_edits();
  const int end = min(edits.end, edits.begin + kManyEdits);
  const auto score_at = [&](int e) {
    if (e >= end || row.edit(e).banned) return MinusInf();
    if (row.IsMasked(row.edit(e).token)) return MinusInf();
    return row.Score(row.Logit(row.edit(e).token), row.edit(e));
  };
#pragma unroll 1
  for (int e = edits.begin + lane; e < end; e += 4 * kWarpSize) {
    best.Add({score_at(e), score_at(e + kWarpSize), score_at(e + 2 * kWarpSize),
              score_at(e + 3 * kWarpSize)});
  }
  return best.best;
}

// Writes the softmax of all rows to `stats`.
template <typename T>
__device__ Summed SumRows(const Params& p, const CudaSelectGroup& group,
                          bool by_logit) {
  Summed summed;
  ForEachRow(group, [&](int beam) {
    const int row = group.first_row + beam;
    // Loaded before the tiles, so that the latencies overlap.
    const CudaRowEdits edits =
        p.in.row_edits != nullptr ? p.in.row_edits[row] : CudaRowEdits{};
    TileBatch batch;
    QuarterMaxima own;
    const RowStats stats = SumTiles(TilesOf<T>(p, row, edits),
                                    p.in.cum_log_probs[row], batch, own);
    summed.edited |= edits.end > edits.begin && !edits.is_allow_list;
    summed.many_edits |= edits.end - edits.begin > kManyEdits;
    if (beam < NumWarps()) {
      summed.stats = stats;
      summed.batch = batch;
    }
    if (threadIdx.x % kWarpSize == 0) p.scratch.stats[row] = stats;
    const RowView<T> view(p, group, beam, by_logit, stats);
    if (edits.is_allow_list) {
      summed.own.Add(BestEditedScores(view));
    } else {
      AddScores(view, own, summed.own);
    }
  });
  return summed;
}

// Removes edited tokens, if any, from all maxima.
template <typename T>
__device__ void ExcludeEditedTokens(const Params& p,
                                    const CudaSelectGroup& group, bool by_logit,
                                    Summed& summed) {
  if (!__syncthreads_or(summed.edited)) return;
#pragma unroll 1
  for (int beam = 0; beam < group.num_rows; ++beam) {
    const RowView<T> row(p, group, beam, by_logit);
    if (!row.alive() || row.is_allow_list()) continue;
    if (row.has_edits()) ExcludeEditedTokens(row);
  }
  __syncthreads();
  summed.own = {};
  ForEachRow(group, [&](int beam) {
    const RowView<T> row(p, group, beam, by_logit);
    if (row.is_allow_list()) return summed.own.Add(BestEditedScores(row));
    TileBatch batch;
    AddScores(row, ReadMaxima(row.maxima(), p.tiles, batch), summed.own);
    if (beam < NumWarps()) summed.batch = batch;
  });
}

// Writes the lanes' maxima to `kSize` places: with few lanes all four of each,
// with many the best of several.
template <int kSize>
__device__ void ShareMaxima(const Params& p, const float4& own, int num_rows,
                            uint32_t* maxima) {
  const int rows = min(num_rows, NumWarps());
  const int per_row = min(p.tiles, kWarpSize);  // lanes that have any
  const int row = threadIdx.x / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  const bool has_any = row < rows && lane < per_row;
  const int index = row * per_row + lane;
  if (4 * rows * per_row <= kSize) {
    if (has_any) {
      reinterpret_cast<uint4*>(maxima)[index] = {
          OrderedBits(own.x), OrderedBits(own.y), OrderedBits(own.z),
          OrderedBits(own.w)};
    }
  } else if (2 * rows * per_row <= kSize) {
    if (has_any) {
      reinterpret_cast<uint2*>(maxima)[index] = {
          OrderedBits(fmaxf(own.x, own.y)), OrderedBits(fmaxf(own.z, own.w))};
    }
  } else if (rows * per_row <= kSize) {
    if (has_any) maxima[index] = OrderedBits(MaxOf(own));
  } else {
    float best = MaxOf(own);
    int each = 1;
    for (; rows * kWarpSize > each * kSize; each *= 2) {
      best = fmaxf(best, __shfl_xor_sync(kAllLanes, best, each));
    }
    if (row < rows && (lane & (each - 1)) == 0) {
      maxima[threadIdx.x >> (__ffs(each) - 1)] = OrderedBits(best);
    }
  }
}

// Returns the m-th largest of the shared maxima, which at least m elements
// reach; 0 if there are fewer.
template <typename Policy, int kSize>
__device__ void FindThreshold(int m, MergeShared& shared) {
  static_assert(kSize <= Policy::kThreads);
  constexpr int kLanes = Policy::kThreads / kSize;  // for one maximum
  constexpr int kCount = kSize / kLanes;            // that each looks at
  const uint32_t own = shared.maxima[threadIdx.x / kLanes];
  int above = 0;
#pragma unroll 8
  for (int i = 0; i < kCount / 4; ++i) {
    const uint4 v = reinterpret_cast<const uint4*>(
        shared.maxima)[i * kLanes + threadIdx.x % kLanes];
    above += (v.x > own) + (v.y > own) + (v.z > own) + (v.w > own);
  }
  above = LaneGroupSum<kLanes>(above);
  const uint32_t lowest =
      __reduce_min_sync(kAllLanes, above < m ? own : 0xFFFFFFFFu);
  if (threadIdx.x % kWarpSize == 0) atomicMin(&shared.cut, lowest);
}

template <typename Policy, int kSize>
__device__ void FindThreshold(const Params& p, const CudaSelectGroup& group,
                              const Summed& summed, MergeShared& shared) {
  ShareMaxima<kSize>(p, summed.own.best, group.num_rows, shared.maxima);
  __syncthreads();
  FindThreshold<Policy, kSize>(group.num_candidates, shared);
  __syncthreads();
}

}  // namespace espalier::cuda_select
