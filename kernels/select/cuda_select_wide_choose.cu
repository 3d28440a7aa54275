// The last step for groups of more than kMaxNarrow candidates: prunes the
// gathered elements (cuda_select_wide.cu) to the m best, and sorts these.
#include <algorithm>

#include "base/status.h"
#include "kernels/select/cuda_select_exact.cuh"
#include "kernels/select/cuda_select_steps.h"
#include "kernels/select/cuda_select_wide.cuh"

namespace espalier::cuda_select {
namespace {

// One key per thread, compared with all others in pieces of this size.
constexpr int kRankThreads = 256;
constexpr int kMaxRankGroups = 16;

struct ChooseShared {
  ExactShared exact;
  unsigned long long last;  // the worst chosen key
  unsigned long long next;  // the best key that is not chosen
  Entry last_entry;
};

// True if candidates of one row with equal rounded sums straddle the threshold
// `cut` but differ otherwise. Then the row's own order decides which of them
// stay.
__device__ bool HasAmbiguousTie(const Params& p, const Entry* entries,
                                int count, ScoreKey cut, ChooseShared& shared) {
  if (threadIdx.x == 0) {
    shared.last = ~0ull;
    shared.next = 0;
  }
  __syncthreads();
  unsigned long long last_key = ~0ull, next_key = 0;
  for (int i = threadIdx.x; i < count; i += kGroupThreads) {
    const unsigned long long key = entries[i].key;
    if (key >= cut) {
      last_key = min(last_key, key);
    } else {
      next_key = max(next_key, key);
    }
  }
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    last_key = min(last_key, __shfl_xor_sync(kAllLanes, last_key, distance));
    next_key = max(next_key, __shfl_xor_sync(kAllLanes, next_key, distance));
  }
  if (threadIdx.x % kWarpSize == 0) {
    atomicMin(&shared.last, last_key);
    atomicMax(&shared.next, next_key);
  }
  __syncthreads();
  const ScoreKey last = shared.last;
  if (shared.next >> kScoreBit != last >> kScoreBit) return false;
  for (int i = threadIdx.x; i < count; i += kGroupThreads) {
    if (entries[i].key == last) shared.last_entry = entries[i];
  }
  __syncthreads();
  bool differs = false;
  for (int i = threadIdx.x; i < count; i += kGroupThreads) {
    const Entry& entry = entries[i];
    differs |= entry.key >> kScoreBit == last >> kScoreBit &&
               entry.beam == shared.last_entry.beam &&
               (entry.edited || entry.logit != shared.last_entry.logit);
  }
  return __syncthreads_or(differs);
}

// Prunes the entries to the m best, to `chosen`. Returns their number, or -1 if
// the cut has an ambiguous tie.
template <typename T>
__device__ int ChooseEntries(const Params& p, const CudaSelectGroup& group,
                             Mode mode, const Entry* entries, int count,
                             ScoreKey* chosen, ChooseShared& shared) {
  const int m = group.num_candidates;
  ScoreKey cut = 0;
  if (count > m) {
    cut = KthLargest(
        [&](const auto& add) {
          for (int i = threadIdx.x; i < count; i += kGroupThreads) {
            add(entries[i].key, 1);
          }
        },
        m, 0, shared.exact.digits);
    if (mode == kBySum && HasAmbiguousTie(p, entries, count, cut, shared)) {
      return -1;
    }
  }
  if (threadIdx.x == 0) shared.exact.count = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += kGroupThreads) {
    if (entries[i].key < cut) continue;
    const ScoreKey key = SumKey<T>(entries[i], p, group, mode);
    if (key != 0) chosen[atomicAdd(&shared.exact.count, 1)] = key;
  }
  __syncthreads();
  return shared.exact.count;
}

template <typename T>
__device__ __noinline__ int ChooseWideRowByRow(const Params& p,
                                               const CudaSelectGroup& group,
                                               Entry* entries, ScoreKey* chosen,
                                               ChooseShared& shared) {
  // Four entries per candidate take the memory of eight keys.
  ScoreKey* best = reinterpret_cast<ScoreKey*>(entries);
  ScoreKey* spare = best + 2 * size_t(group.num_candidates);
  const int count = ChooseRowByRow<T>(p, group, best, spare, shared.exact);
  for (int i = threadIdx.x; i < count; i += kGroupThreads) chosen[i] = best[i];
  return count;
}

template <typename T>
__global__ __launch_bounds__(kGroupThreads) void ChooseGroups(
    const __grid_constant__ Params p) {
  __shared__ ChooseShared shared;
  LaunchDependents();
  GridDependencyWait();
  ForEachWideGroup(p, blockIdx.x, gridDim.x, [&](const auto& group, int g) {
    const Mode mode = static_cast<Mode>(p.scratch.modes[g]);
    const int count = p.scratch.counts[g];
    Entry* const entries = EntriesOf(p, group);
    ScoreKey* const chosen = p.scratch.chosen + group.first_candidate;
    int num_chosen = -1;
    if (mode != kExact &&
        count <= kEntriesPerCandidate * group.num_candidates) {
      num_chosen =
          ChooseEntries<T>(p, group, mode, entries, count, chosen, shared);
    }
    if (num_chosen < 0) {
      num_chosen = ChooseWideRowByRow<T>(p, group, entries, chosen, shared);
    }
    if (threadIdx.x == 0) p.out.num_candidates[g] = num_chosen;
    __syncthreads();
  });
}

__global__ __launch_bounds__(kRankThreads) void RankChosen(
    const __grid_constant__ Params p) {
  __shared__ ScoreKey piece[kRankThreads];
  LaunchDependents();
  GridDependencyWait();
  ForEachWideGroup(p, blockIdx.y, gridDim.y, [&](const auto& group, int g) {
    const int count = p.out.num_candidates[g];
    const ScoreKey* const chosen = p.scratch.chosen + group.first_candidate;
    const int begin = blockIdx.x * kRankThreads;
    if (begin >= count) return;
    const int index = begin + threadIdx.x;
    const ScoreKey own = index < count ? chosen[index] : 0;
    int rank = 0;
    for (int base = 0; base < count; base += kRankThreads) {
      const int other = base + threadIdx.x;
      piece[threadIdx.x] = other < count ? chosen[other] : 0;
      __syncthreads();
#pragma unroll 8
      for (int i = 0; i < kRankThreads; ++i) rank += piece[i] > own;
      __syncthreads();
    }
    if (index < count) {
      p.out.candidates[group.first_candidate + rank] =
          CandidateOf(own, BeamOf(own, p.in.vocab_size), p.in.vocab_size);
    }
  });
}

template <typename T>
absl::Status Enqueue(const Params& p, cudaStream_t stream) {
  const LaunchConfig places = {
      .grid = dim3((p.in.max_candidates + kRankThreads - 1) / kRankThreads,
                   std::min(p.in.max_groups, kMaxRankGroups)),
      .block = dim3(kRankThreads)};
  RETURN_IF_ERROR(Launch(ChooseGroups<T>, ShapeOfWideGroups(p), stream, p));
  return Launch(RankChosen, places, stream, p);
}

}  // namespace

absl::Status ChooseWideGroups(const Params& p, cudaStream_t stream) {
  return ByRowType(p.in, [&]<typename T>() { return Enqueue<T>(p, stream); });
}

}  // namespace espalier::cuda_select
