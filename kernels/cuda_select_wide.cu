// Groups of more than kMaxNarrow candidates: wide beams, and long lists to
// sample from. The same idea as in cuda_select.cu, with each step spread over
// the device:
//
//   SumWideRows   log-sum-exp of each row, and 32 maxima of it;
//   FindCuts      one block a group: a threshold under the m-th best sum, as
//                 the m-th largest of the maxima of all rows;
//   GatherRows    one block a row: appends what reaches it, 1.15 m expected;
//   RaiseCuts     a better threshold where too much was gathered, and again;
//   ChooseGroups  one block a group: cuts that to the m best;
//   RankChosen    each candidate's place is the number of better ones.
//
// Ranking compares every pair, 10^8 of 10,000, which is spread over the device
// as it is and needs no order between blocks. Each step is one launch for all
// groups (gathering and raising, some), and passes over those that are narrow.
//
// On an NVIDIA H200, f32, the whole call in a graph with logits cold
// (bin/cuda_select_benchmark):
//
//     rows x logits        groups       m       us   reading alone
//     1024 x 128,256      16 of 64      128    155     120
//      512 x 128,256       1 of 512    1024    105
//     5000 x 151,936       1 of 5000  10000    877     675 (4.5 TB/s)
//        1 x 151,936       1 of 1     10000    355       2.5
//
// The last is a wide beam's first step: no threshold can be told from fewer
// maxima than m, and one block cuts what is gathered to the m best.
#include <algorithm>

#include "base/status.h"
#include "kernels/cuda_select_exact.cuh"
#include "kernels/cuda_select_steps.h"

namespace espalier::cuda_select {
namespace {

// A few warps that wait for memory in turn.
constexpr int kRowThreads = 128;
// As many as a row of the largest vocabularies keeps busy.
constexpr int kGroupThreads = 1024;
// Blocks that take the groups in turn. More would be idle in most launches.
constexpr int kMaxGroupBlocks = 128;
// Blocks a multiprocessor that a few rows are gathered by.
constexpr int kGatherBlocks = 4;
constexpr int kFewQuarters = 4;
// One key a thread, compared with all others in pieces of this size.
constexpr int kRankThreads = 256;
constexpr int kMaxRankGroups = 16;
// How often a threshold is raised for fewer entries, by a factor of four each
// time. Where that is not enough, scores tie.
constexpr int kNumRaises = 3;

__device__ bool IsWide(const CudaSelectGroup& group) {
  return group.num_candidates > kMaxNarrow;
}

// The group of a row, and the row within it.
struct WideRow {
  int index = -1;  // of the group; -1 if there is nothing to do
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

__device__ Entry* EntriesOf(const Params& p, const CudaSelectGroup& group) {
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

// A warp: the best score that each lane has among the first of the row's edited
// tokens. So few that a long list takes no longer than a row's tiles.
template <typename T>
__device__ float BestOfSomeEdited(const RowView<T>& row) {
  constexpr int kEach = 8;
  float max = MinusInf();
  const int lane = threadIdx.x % kWarpSize;
  const CudaRowEdits& edits = row.row_edits();
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int e = edits.begin + lane + i * kWarpSize;
    if (e >= edits.end || row.edit(e).banned) continue;
    max = fmaxf(max, row.Score(row.Logit(row.edit(e).token), row.edit(e)));
  }
  return max;
}

// A warp a row; the edits of a row, by all.
template <typename T>
__global__ __launch_bounds__(kRowThreads) void SumWideRows(
    const __grid_constant__ Params p) {
  LetNextStart();
  WaitForPrevious();
  constexpr int kRows = kRowThreads / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  const int row = blockIdx.x * kRows + threadIdx.x / kWarpSize;
  const WideRow own(p, row);
  RowStats stats;
  QuarterMaxima maxima;
  if (own.index >= 0) {
    TileBatch batch;
    stats = SumTiles(p, row, batch, maxima);
    if (lane == 0) p.scratch.stats[row] = stats;
  }
  if (p.in.row_edits != nullptr) {
    __syncthreads();
    for (int i = 0; i < kRows; ++i) {
      const WideRow other(p, blockIdx.x * kRows + i);
      if (other.index < 0) continue;
      const RowView<T> view(p, other.group, other.beam, /*by_logit=*/false);
      if (!view.alive() || view.only_edited()) continue;
      if (view.has_edits()) LeaveEditedOut(view);
    }
    __syncthreads();
  }
  if (own.index < 0) return;
  float max = MinusInf();
  const RowView<T> view(p, own.group, own.beam, /*by_logit=*/false, stats);
  if (view.alive() && view.only_edited()) {
    max = BestOfSomeEdited(view);
  } else if (view.alive()) {
    TileBatch batch;
    if (view.has_edits()) maxima = ReadMaxima(view.maxima(), p.tiles, batch);
    max = view.Score(MaxOf(maxima.best));
  }
  p.scratch.columns[size_t(row) * kColumns + lane] = max;
}

// The m-th largest of the maxima of the group's rows, `step` of which are taken
// as one; 0 if there are fewer.
template <int kStep>
__device__ uint32_t CutOfColumns(const Params& p, const CudaSelectGroup& group,
                                 DigitCounts& digits) {
  const float* const sums =
      p.scratch.columns + size_t(group.first_row) * kColumns;
  const int size = group.num_rows * kColumns;
  const ScoreKey key = KthLargest(
      [&](const auto& add) {
#pragma unroll 4
        for (int i = threadIdx.x * kStep; i < size;
             i += kGroupThreads * kStep) {
          float max = sums[i];
#pragma unroll
          for (int j = 1; j < kStep; ++j) max = fmaxf(max, sums[i + j]);
          const uint32_t ordered = Ordered(max);
          if (ordered != 0) add(ScoreKey{ordered} << kScoreBit, 1);
        }
      },
      group.num_candidates, kScoreBit, digits);
  return static_cast<uint32_t>(key >> kScoreBit);
}

// The same among the maxima of quarters, and tokens of rows that have no
// others.
template <typename T>
__device__ uint32_t CutOfQuarters(const Params& p, const CudaSelectGroup& group,
                                  bool by_logit, DigitCounts& digits) {
  const ScoreKey key = KthLargest(
      [&](const auto& add) {
        for (int beam = 0; beam < group.num_rows; ++beam) {
          const RowView<T> row(p, group, beam, by_logit);
          if (!row.alive()) continue;
          if (row.only_edited()) {
            ForEachEdited(row, threadIdx.x, kGroupThreads,
                          [&](int, float, float score) {
                            add(ScoreKey{Ordered(score)} << kScoreBit, 1);
                          });
            continue;
          }
          for (int q = threadIdx.x; q < p.tiles * kQuarters;
               q += kGroupThreads) {
            const uint32_t ordered = Ordered(row.Score(row.maxima()[q]));
            if (ordered != 0) add(ScoreKey{ordered} << kScoreBit, 1);
          }
        }
      },
      group.num_candidates, kScoreBit, digits);
  return static_cast<uint32_t>(key >> kScoreBit);
}

// A threshold that at least m elements reach, from as few maxima as will do;
// 0 if that is all of them.
template <typename T>
__device__ uint32_t FindCut(const Params& p, const CudaSelectGroup& group,
                            bool by_logit, DigitCounts& digits) {
  constexpr int kStep = 4;
  const int64_t m = group.num_candidates;
  const int64_t columns = int64_t{group.num_rows} * kColumns;
  uint32_t cut = 0;
  if (!by_logit && columns / kStep >= 4 * m) {
    cut = CutOfColumns<kStep>(p, group, digits);
  }
  if (!by_logit && cut == 0 && columns >= 2 * m) {
    cut = CutOfColumns<1>(p, group, digits);
  }
  if (cut == 0 && int64_t{group.num_rows} * p.tiles * kQuarters >= m) {
    cut = CutOfQuarters<T>(p, group, by_logit, digits);
  }
  return cut;
}

template <typename T>
__global__ __launch_bounds__(kGroupThreads) void FindCuts(
    const __grid_constant__ Params p) {
  __shared__ DigitCounts digits;
  LetNextStart();
  WaitForPrevious();
  ForEachWideGroup(p, blockIdx.x, gridDim.x, [&](const auto& group, int g) {
    Mode mode = ModeOf(p, group);
    uint32_t cut = 0;
    if (mode != kRowByRow) cut = FindCut<T>(p, group, mode == kByLogit, digits);
    if (threadIdx.x == 0) {
      p.scratch.cuts[g] = cut;
      p.scratch.modes[g] = mode;
      p.scratch.counts[g] = 0;
      p.scratch.gathers[g] = mode != kRowByRow;
    }
  });
}

// Blocks share a row's quarters, by blockIdx.y of gridDim.y. After the first
// time, only for groups whose cut has been raised.
template <typename T>
__global__ __launch_bounds__(kRowThreads) void GatherRows(
    const __grid_constant__ Params p) {
  LetNextStart();
  WaitForPrevious();
  const WideRow own(p, blockIdx.x);
  if (own.index < 0 || !p.scratch.gathers[own.index]) return;
  const int mode = p.scratch.modes[own.index];
  const RowView<T> row(p, own.group, own.beam, mode == kByLogit);
  if (!row.alive()) return;
  const float cut = CutScore(p.scratch.cuts[own.index]);
  const float floor = row.Floor(cut);
  int* const count = p.scratch.counts + own.index;
  const int capacity = kEntriesPerCandidate * own.group.num_candidates;
  Entry* const entries = EntriesOf(p, own.group);
  const int lane = threadIdx.x % kWarpSize;
  const auto append = [&](const Entry& entry) {
    // One addition for the lanes that come here together.
    const unsigned active = __activemask();
    const int leader = __ffs(active) - 1;
    int base = 0;
    if (lane == leader) base = atomicAdd(count, __popc(active));
    const int i =
        __shfl_sync(active, base, leader) + __popc(active & ((1u << lane) - 1));
    if (i < capacity) entries[i] = entry;
  };
  const int num_quarters = row.only_edited() ? 0 : p.tiles * kQuarters;
  // A warp looks at 32 quarters at a time, or where a row has many warps, so
  // few that all have some.
  const int window = gridDim.y > 1 ? kFewQuarters : kWarpSize;
  const int thread = blockIdx.y * kRowThreads + threadIdx.x;
  const int num_threads = gridDim.y * kRowThreads;
  for (int base = thread / kWarpSize * window; base < num_quarters;
       base += num_threads / kWarpSize * window) {
    const int quarter = base + lane;
    const bool exists = lane < window && quarter < num_quarters;
    const float best = exists ? row.Score(row.maxima()[quarter]) : MinusInf();
    for (unsigned left =
             __ballot_sync(kAllLanes, best > MinusInf() && best >= cut);
         left != 0; left &= left - 1) {
      const int found = base + __ffs(left) - 1;
      const LaneLogits<T> logits(row, found);
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) {
        const float x = logits.value(row, i);
        if (x >= floor) Offer(row, logits.token(i), x, cut, append);
      }
      __syncwarp();
    }
  }
  if (row.has_edits()) GatherEdited(row, cut, thread, num_threads, append);
}

// Where more was gathered than there is room for, the m-th best of what was is
// a higher threshold: of n elements about n / 4 will reach it.
__global__ __launch_bounds__(kGroupThreads) void RaiseCuts(
    const __grid_constant__ Params p) {
  __shared__ DigitCounts digits;
  LetNextStart();
  WaitForPrevious();
  ForEachWideGroup(p, blockIdx.x, gridDim.x, [&](const auto& group, int g) {
    const int capacity = kEntriesPerCandidate * group.num_candidates;
    if (p.scratch.counts[g] <= capacity) {
      if (threadIdx.x == 0) p.scratch.gathers[g] = false;
      return;
    }
    const Entry* const entries = EntriesOf(p, group);
    const ScoreKey key = KthLargest(
        [&](const auto& add) {
          for (int i = threadIdx.x; i < capacity; i += kGroupThreads) {
            add(entries[i].key, 1);
          }
        },
        group.num_candidates, kScoreBit, digits);
    // The lowest key with the digits found stands for all that reach it.
    if (threadIdx.x == 0) {
      p.scratch.cuts[g] = static_cast<uint32_t>(key >> kScoreBit);
      p.scratch.counts[g] = 0;
    }
  });
}

struct ChooseShared {
  ExactShared exact;
  unsigned long long last;  // the worst key that is chosen
  unsigned long long next;  // the best that is not
  Entry last_entry;
};

// Whether the cut at `cut` goes through elements of one sum and one row that
// differ otherwise: then it is the row's own choice that decides which stay.
__device__ bool CutIsDoubtful(const Params& p, const Entry* entries, int count,
                              ScoreKey cut, ChooseShared& shared) {
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

// Cuts the entries to the m best, to `chosen`. Returns how many, -1 if the
// cut is doubtful.
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
    if (mode == kBySum && CutIsDoubtful(p, entries, count, cut, shared)) {
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
  // Room for four entries a candidate is room for eight keys.
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
  LetNextStart();
  WaitForPrevious();
  ForEachWideGroup(p, blockIdx.x, gridDim.x, [&](const auto& group, int g) {
    const Mode mode = static_cast<Mode>(p.scratch.modes[g]);
    const int count = p.scratch.counts[g];
    Entry* const entries = EntriesOf(p, group);
    ScoreKey* const chosen = p.scratch.chosen + group.first_candidate;
    int num_chosen = -1;
    if (mode != kRowByRow &&
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
  LetNextStart();
  WaitForPrevious();
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
absl::Status Enqueue(const Params& p, const CudaDevice& device,
                     cudaStream_t stream) {
  constexpr int kRowsPerBlock = kRowThreads / kWarpSize;
  const LaunchShape rows = {
      .grid = dim3((p.in.num_rows + kRowsPerBlock - 1) / kRowsPerBlock),
      .block = dim3(kRowThreads)};
  // Few rows are shared by many blocks.
  constexpr int kPerBlock = kRowThreads / kWarpSize * kFewQuarters;
  const int blocks_per_row =
      std::clamp(kGatherBlocks * device.num_sms / p.in.num_rows, 1,
                 (p.tiles * kQuarters + kPerBlock - 1) / kPerBlock);
  const LaunchShape parts = {
      .grid = dim3(p.in.num_rows, static_cast<unsigned>(blocks_per_row)),
      .block = dim3(kRowThreads)};
  const LaunchShape groups = {
      .grid = dim3(std::min(p.in.max_groups, kMaxGroupBlocks)),
      .block = dim3(kGroupThreads)};
  const LaunchShape places = {
      .grid = dim3((p.in.max_candidates + kRankThreads - 1) / kRankThreads,
                   std::min(p.in.max_groups, kMaxRankGroups)),
      .block = dim3(kRankThreads)};
  RETURN_IF_ERROR(Launch(SumWideRows<T>, rows, stream, p));
  RETURN_IF_ERROR(Launch(FindCuts<T>, groups, stream, p));
  RETURN_IF_ERROR(Launch(GatherRows<T>, parts, stream, p));
  for (int i = 0; i < kNumRaises; ++i) {
    RETURN_IF_ERROR(Launch(RaiseCuts, groups, stream, p));
    RETURN_IF_ERROR(Launch(GatherRows<T>, parts, stream, p));
  }
  RETURN_IF_ERROR(Launch(ChooseGroups<T>, groups, stream, p));
  return Launch(RankChosen, places, stream, p);
}

}  // namespace

absl::Status MergeWideGroups(const Params& p, const CudaDevice& device,
                             cudaStream_t stream) {
  return p.in.dtype == DType::kFloat32 ? Enqueue<float>(p, device, stream)
                                       : Enqueue<uint16_t>(p, device, stream);
}

}  // namespace espalier::cuda_select
