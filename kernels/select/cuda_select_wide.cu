// Groups of more than kMaxNarrow candidates: wide beams, and long lists to
// sample from. The algorithm of cuda_select.cu, with each step spread over the
// device:
//
//   SumWideRows   log-sum-exp of each row, and 32 maxima of it;
//   FindCuts      one block per group: a threshold below the m-th best sum, the
//                 m-th largest of the maxima of all rows;
//   GatherRows    one block per row: appends elements that reach it, 1.15 m
//                 expected;
//   RaiseCuts     a better threshold if too many were gathered, and again;
//   ChooseGroups  one block per group: prunes the elements to the m best;
//   RankChosen    each candidate's place is the number of better ones.
//
// Ranking compares every pair, 10^8 for 10,000 candidates. It is spread over
// the device and needs no order between blocks. Each step is one launch for all
// groups (gathering and raising, several), and skips narrow groups.
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
// The last line is a wide beam's first step: there are fewer maxima than m, so
// no threshold can be found, and one block prunes the gathered elements to the
// m best.
#include <algorithm>

#include "base/status.h"
#include "kernels/select/cuda_select_exact.cuh"
#include "kernels/select/cuda_select_steps.h"
#include "kernels/select/cuda_select_wide.cuh"

namespace espalier::cuda_select {
namespace {

// A few warps, which hide each other's memory latency.
constexpr int kRowThreads = 128;
// Blocks per multiprocessor that gather a few rows.
constexpr int kGatherBlocks = 4;
constexpr int kFewQuarters = 4;
// Number of times that a threshold is raised, each time for a quarter of the
// entries. If that is not enough, scores tie.
constexpr int kNumRaises = 3;

// One warp: the best score of each lane among the first of the row's edited
// tokens. So few of them that a long list takes no longer than a row's tiles.
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
    if (row.IsMasked(row.edit(e).token)) continue;
    max = fmaxf(max, row.Score(row.Logit(row.edit(e).token), row.edit(e)));
  }
  return max;
}

// One warp per row. The whole block excludes the edited tokens of each row.
template <typename T>
__global__ __launch_bounds__(kRowThreads) void SumWideRows(
    const __grid_constant__ Params p) {
  LaunchDependents();
  GridDependencyWait();
  constexpr int kRows = kRowThreads / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  const int row = blockIdx.x * kRows + threadIdx.x / kWarpSize;
  const WideRow own(p, row);
  RowStats stats;
  QuarterMaxima maxima;
  if (own.index >= 0) {
    TileBatch batch;
    const CudaRowEdits edits =
        p.in.row_edits != nullptr ? p.in.row_edits[row] : CudaRowEdits{};
    stats = SumTiles(TilesOf<T>(p, row, edits), p.in.cum_log_probs[row], batch,
                     maxima);
    if (lane == 0) p.scratch.stats[row] = stats;
  }
  if (p.in.row_edits != nullptr) {
    __syncthreads();
    for (int i = 0; i < kRows; ++i) {
      const WideRow other(p, blockIdx.x * kRows + i);
      if (other.index < 0) continue;
      const RowView<T> view(p, other.group, other.beam, /*by_logit=*/false);
      if (!view.alive() || view.is_allow_list()) continue;
      if (view.has_edits()) ExcludeEditedTokens(view);
    }
    __syncthreads();
  }
  if (own.index < 0) return;
  float max = MinusInf();
  const RowView<T> view(p, own.group, own.beam, /*by_logit=*/false, stats);
  if (view.alive() && view.is_allow_list()) {
    max = BestOfSomeEdited(view);
  } else if (view.alive()) {
    TileBatch batch;
    if (view.has_edits()) maxima = ReadMaxima(view.maxima(), p.tiles, batch);
    max = view.Score(MaxOf(maxima.best));
  }
  p.scratch.columns[size_t(row) * kColumns + lane] = max;
}

// Returns the m-th largest of the maxima of the group's rows, with `step` of
// them merged into one; 0 if there are fewer.
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
          const uint32_t ordered = OrderedBits(max);
          if (ordered != 0) add(ScoreKey{ordered} << kScoreBit, 1);
        }
      },
      group.num_candidates, kScoreBit, digits);
  return static_cast<uint32_t>(key >> kScoreBit);
}

// Returns the threshold from the maxima of quarters, and from the tokens of
// rows that are allow lists.
template <typename T>
__device__ uint32_t CutOfQuarters(const Params& p, const CudaSelectGroup& group,
                                  bool by_logit, DigitCounts& digits) {
  const ScoreKey key = KthLargest(
      [&](const auto& add) {
        for (int beam = 0; beam < group.num_rows; ++beam) {
          const RowView<T> row(p, group, beam, by_logit);
          if (!row.alive()) continue;
          if (row.is_allow_list()) {
            ForEachEdited(row, threadIdx.x, kGroupThreads,
                          [&](int, float, float score) {
                            add(ScoreKey{OrderedBits(score)} << kScoreBit, 1);
                          });
            continue;
          }
          for (int q = threadIdx.x; q < p.tiles * kQuarters;
               q += kGroupThreads) {
            const uint32_t ordered = OrderedBits(row.Score(row.maxima()[q]));
            if (ordered != 0) add(ScoreKey{ordered} << kScoreBit, 1);
          }
        }
      },
      group.num_candidates, kScoreBit, digits);
  return static_cast<uint32_t>(key >> kScoreBit);
}

// Returns a threshold that at least m elements reach, from as few maxima as
// possible; 0 if all of them are too few.
template <typename T>
__device__ uint32_t FindThreshold(const Params& p, const CudaSelectGroup& group,
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
  LaunchDependents();
  GridDependencyWait();
  ForEachWideGroup(p, blockIdx.x, gridDim.x, [&](const auto& group, int g) {
    Mode mode = ModeOf<T>(p, group);
    uint32_t cut = 0;
    if (mode != kExact)
      cut = FindThreshold<T>(p, group, mode == kByLogit, digits);
    if (threadIdx.x == 0) {
      p.scratch.cuts[g] = cut;
      p.scratch.modes[g] = mode;
      p.scratch.counts[g] = 0;
      p.scratch.gathers[g] = mode != kExact;
    }
  });
}

// Blocks divide a row's quarters, by blockIdx.y of gridDim.y. After the first
// launch, only for groups whose cut has been raised.
template <typename T>
__global__ __launch_bounds__(kRowThreads) void GatherRows(
    const __grid_constant__ Params p) {
  LaunchDependents();
  GridDependencyWait();
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
    // One atomic addition for all lanes that are active here.
    const unsigned active = __activemask();
    const int leader = __ffs(active) - 1;
    int base = 0;
    if (lane == leader) base = atomicAdd(count, __popc(active));
    const int i =
        __shfl_sync(active, base, leader) + __popc(active & ((1u << lane) - 1));
    if (i < capacity) entries[i] = entry;
  };
  const int num_quarters = row.is_allow_list() ? 0 : p.tiles * kQuarters;
  // A warp reads 32 quarters at a time or, if a row has many warps, so few that
  // every warp has some.
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
      const LaneLogits<LogitOf<T>> logits(row, found);
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) {
        const float x = logits.value(row, i);
        if (x >= floor) AppendIfAbove(row, logits.token(i), x, cut, append);
      }
      __syncwarp();
    }
  }
  if (row.has_edits()) GatherEdited(row, cut, thread, num_threads, append);
}

// Raises the threshold of groups with more gathered entries than capacity, to
// the m-th best of the stored ones: about n / 4 of n elements will reach it.
__global__ __launch_bounds__(kGroupThreads) void RaiseCuts(
    const __grid_constant__ Params p) {
  __shared__ DigitCounts digits;
  LaunchDependents();
  GridDependencyWait();
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
    // The lowest key with the found digits is a bound of all keys that reach
    // it.
    if (threadIdx.x == 0) {
      p.scratch.cuts[g] = static_cast<uint32_t>(key >> kScoreBit);
      p.scratch.counts[g] = 0;
    }
  });
}

template <typename T>
absl::Status Enqueue(const Params& p, const CudaDevice& device,
                     cudaStream_t stream) {
  constexpr int kRowsPerBlock = kRowThreads / kWarpSize;
  const LaunchConfig rows = {
      .grid = dim3((p.in.num_rows + kRowsPerBlock - 1) / kRowsPerBlock),
      .block = dim3(kRowThreads)};
  // Many blocks share few rows.
  constexpr int kPerBlock = kRowThreads / kWarpSize * kFewQuarters;
  const int blocks_per_row =
      std::clamp(kGatherBlocks * device.num_sms / p.in.num_rows, 1,
                 (p.tiles * kQuarters + kPerBlock - 1) / kPerBlock);
  const LaunchConfig parts = {
      .grid = dim3(p.in.num_rows, static_cast<unsigned>(blocks_per_row)),
      .block = dim3(kRowThreads)};
  const LaunchConfig groups = ShapeOfWideGroups(p);
  RETURN_IF_ERROR(Launch(SumWideRows<T>, rows, stream, p));
  RETURN_IF_ERROR(Launch(FindCuts<T>, groups, stream, p));
  RETURN_IF_ERROR(Launch(GatherRows<T>, parts, stream, p));
  for (int i = 0; i < kNumRaises; ++i) {
    RETURN_IF_ERROR(Launch(RaiseCuts, groups, stream, p));
    RETURN_IF_ERROR(Launch(GatherRows<T>, parts, stream, p));
  }
  return ChooseWideGroups(p, stream);
}

}  // namespace

absl::Status MergeWideGroups(const Params& p, const CudaDevice& device,
                             cudaStream_t stream) {
  return ByRowType(p.in,
                   [&]<typename T>() { return Enqueue<T>(p, device, stream); });
}

}  // namespace espalier::cuda_select
