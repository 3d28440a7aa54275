// The second half of choosing a group by one block: ranks and writes the
// elements that reach the threshold or, if that is not safe, chooses the group
// row by row.
#pragma once

#include <algorithm>

#include "kernels/select/cuda_select_cut.cuh"
#include "kernels/select/cuda_select_exact.cuh"
#include "kernels/select/cuda_select_group.cuh"

namespace espalier::cuda_select {

// The logits of a lane, numbered up to 31, that reach a floor. Nearly always at
// most one, whose logit is kept.
struct AboveThreshold {
  unsigned bits = 0;
  float logit = 0;  // logit added last

  __device__ void Add(int number, float x) {
    bits |= 1u << number;
    logit = x;
  }
  // Calls visit(number, true if `logit` is its logit), the last number first.
  // REQUIRES: numbers were added in ascending order.
  template <typename Visit>
  __device__ void ForEach(const Visit& visit) const {
    unsigned left = bits;
#pragma unroll 1
    for (bool at_hand = true; left != 0; at_hand = false) {
      const int last = kWarpSize - 1 - __clz(left);
      left ^= 1u << last;
      visit(last, at_hand);
    }
  }
};

// Ranks the entries, each by several lanes that share the comparisons, and
// calls visit(entry, rank) once for each. Keys are distinct, except for 0,
// which is none.
template <typename Visit>
__device__ void Rank(MergeShared& shared, int num_entries, const Visit& visit) {
  const int log_size = num_entries > 1 ? kWarpSize - __clz(num_entries - 1) : 0;
  const int log_lanes = min(5, __ffs(blockDim.x) - 1 - log_size);
  const int lanes = 1 << log_lanes;
  const int index = threadIdx.x >> log_lanes;
  const ScoreKey own = index < num_entries ? shared.entries[index].key : 0;
  int rank = 0;
#pragma unroll 2
  for (int i = threadIdx.x & (lanes - 1); i < num_entries; i += lanes) {
    rank += shared.entries[i].key > own;
  }
#pragma unroll 1
  for (int distance = 1; distance < lanes; distance *= 2) {
    rank += __shfl_xor_sync(kAllLanes, rank, distance);
  }
  if ((threadIdx.x & (lanes - 1)) == 0 && own != 0) {
    visit(shared.entries[index], rank);
  }
}

// Writes the `num_best` entries of rank below m.
__device__ inline void WriteBest(const Params& p, const CudaSelectGroup& group,
                                 int group_idx, int num_entries, int num_best,
                                 MergeShared& shared) {
  const int m = group.num_candidates;
  Candidate* const out = p.out.candidates + group.first_candidate;
  Rank(shared, num_entries, [&](const Entry& entry, int rank) {
    if (rank < m) {
      out[rank] = CandidateOf(entry.key, entry.beam, p.in.vocab_size);
    }
    if (rank == m - 1) shared.last = entry;
    if (rank == m) shared.next = entry.key;
  });
  if (threadIdx.x == 0) p.out.num_candidates[group_idx] = num_best;
}

// True if candidates of one row with equal rounded sums straddle the threshold
// but differ otherwise, and the row has more than m that reach it. Then the
// row's own order decides which of them are among its m best.
__device__ inline bool HasAmbiguousTie(int m, int num_entries,
                                       const MergeShared& shared) {
  const ScoreKey last = shared.last.key >> kScoreBit;
  if (shared.next >> kScoreBit != last) return false;
  bool differs = false;
  int num_reaching = 0;  // in the row
  for (int first = 0; first < num_entries; first += blockDim.x) {
    const int i = first + static_cast<int>(threadIdx.x);
    const bool is_in_row =
        i < num_entries && shared.entries[i].beam == shared.last.beam;
    const ScoreKey score = is_in_row ? shared.entries[i].key >> kScoreBit : 0;
    num_reaching += __syncthreads_count(is_in_row && score >= last);
    differs |= is_in_row && score == last &&
               (shared.entries[i].edited ||
                shared.entries[i].logit != shared.last.logit);
  }
  return __syncthreads_or(differs) && num_reaching > m;
}

// Exact fallback for any ties. It is not inlined and takes no reference to the
// state of the fast path, so that this state stays in registers.
template <typename T>
__device__ __noinline__ void MergeExact(const Params& p, int group_idx,
                                        MergeShared& shared) {
  const CudaSelectGroup group = p.in.groups[group_idx];
  ScoreKey* best = shared.keys[0];
  ScoreKey* spare = shared.keys[1];
  const int count = ChooseRowByRow<T>(p, group, best, spare, shared.exact);
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    shared.entries[i] = {best[i], 0, BeamOf(best[i], p.in.vocab_size), false};
  }
  __syncthreads();
  WriteBest(p, group, group_idx, count, count, shared);
}

// In kByLogit: drops all but the m best logits, and replaces logits by sums.
template <typename T>
__device__ __noinline__ void KeepBestLogits(const Params& p,
                                            const CudaSelectGroup& group,
                                            int num_entries,
                                            MergeShared& shared) {
  ScoreKey key = 0;
  Entry* own = nullptr;
  Rank(shared, num_entries, [&](Entry& entry, int rank) {
    own = &entry;
    if (rank < group.num_candidates) key = SumKey<T>(entry, p, group, kByLogit);
  });
  __syncthreads();
  if (own != nullptr) own->key = key;
  if (key != 0) atomicAdd(&shared.num_left, 1);
  __syncthreads();
}

// All threads: chooses the best sums, `by_logit` in kByLogit, once all entries
// that reach the cut are counted and stored up to capacity.
template <typename T>
__device__ void FinishGroup(const Params& p, const CudaSelectGroup& group,
                            int group_idx, bool by_logit, MergeShared& shared) {
  const int m = group.num_candidates;
  const int num_entries = shared.num_entries;
  if (num_entries > kMaxEntries) return MergeExact<T>(p, group_idx, shared);
  if (by_logit) KeepBestLogits<T>(p, group, num_entries, shared);
  const int num_best = by_logit ? shared.num_left : min(m, num_entries);
  WriteBest(p, group, group_idx, num_entries, num_best, shared);
  if (by_logit || num_entries <= m) return;
  __syncthreads();
  if (HasAmbiguousTie(m, num_entries, shared)) {
    MergeExact<T>(p, group_idx, shared);
  }
}

}  // namespace espalier::cuda_select
