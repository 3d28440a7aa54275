// What a block of a draw shares (cuda_sample.cu): the few tokens that it lists,
// sums over its threads, and histograms.
//
// A cut, and a token at the end, is searched for as in a radix sort: a round
// counts elements, or adds their masses up, in bins of equal ranges of ranks,
// finds the bin that reaches what is looked for, and the next round parts that
// one. Sums are of integers, so no order of additions changes one.
#pragma once

#include <algorithm>

#include "kernels/sample/cuda_sample_cluster.cuh"
#include "kernels/sample/cuda_sample_row.cuh"

namespace espalier::cuda_sample {

using Mass = unsigned long long;  // a sum of weights, in 2^-40

constexpr float kUnit = 0x1p40f;
// A distance that no cut lets pass: of banned tokens and of -inf.
constexpr uint32_t kNever = 0xFFFFFFFFu;
constexpr uint32_t kAll = kNever - 1;  // a cut that lets all others pass

// Bins of a round of a search, two of each of the threads that add them up.
constexpr int kBins = 512;
constexpr int kScanWarps = kBins / 2 / kWarpSize;
// Tokens that a block keeps: what 50 or 1,000 of top_k leave, and most nuclei.
// 32 KiB, so that four blocks share a multiprocessor.
constexpr int kListSize = 2048;
// Up to so many, each is compared with all others.
constexpr int kShortList = 128;

// Up to one draw for each multiprocessor: what counts is a thread's longest
// way.
struct FewDraws {
  static constexpr int kThreads = 512;
  static constexpr int kMinBlocks = 1;
  // Up to half as many have several blocks each.
  static constexpr bool kClusters = true;
};
// More: four blocks wait for memory in turn.
struct ManyDraws {
  static constexpr int kThreads = 256;
  static constexpr int kMinBlocks = 4;
  static constexpr bool kClusters = false;
};
constexpr int kMaxThreads = FewDraws::kThreads;
constexpr int kMaxWarps = kMaxThreads / kWarpSize;
// Quarters that a warp has on their way: where few are wanted, and else.
constexpr int kFewAtOnce = 4;
constexpr int kQuartersAtOnce = 2;
// What all threads but one return.
constexpr TokenId kNotMine = -3;
// Sums that blocks of a cluster tell each other; each of these has been taken
// by all before it is told again.
enum Told { kToldKept, kToldTypical, kToldWeighted, kNumTold };

struct alignas(16) Element {
  uint32_t distance;
  int token;
  Mass weight;
};

struct Shared {
  alignas(8) int counts[kBins];
  alignas(8) uint32_t low[kBins];  // of masses
  alignas(8) uint32_t high[kBins];
  Element list[kListSize];
  int num_listed;
  int found[kMaxThreads];  // quarters that may hold what is looked for
  int num_found;
  float maxima[kMaxWarps];
  Mass sums[kMaxWarps];
  Mass more_sums[kMaxWarps];
  uint32_t furthest[kMaxWarps];
  int count_sums[kScanWarps];
  int token;
  // Of the row before edits.
  float raw_max;
  float log_sum;
  // The bin that a search ends in; -1 if it ends in none.
  int bin;
  Mass before;      // what is in bins before it
  Mass of_bin;      // and in it
  int count;        // elements in it
  int count_up_to;  // and before it
  int tile;         // that a draw ends in
  Mass before_tile;
  Mass of_tile;
  // Of a cluster's blocks.
  Mass told[kNumTold][kMaxCluster];
  int listed_before[kMaxCluster + 1];
};

// The one of a block. By its own name, and not by reference, functions out of
// line know that it is shared memory; by reference they go through generic
// addresses, for atomics too.
__device__ inline Shared& OfBlock() {
  __shared__ Shared shared;
  return shared;
}

// What a search goes by, from the first element to the last: lower is earlier.
// If `open`, ranks outside [low, high] share the bins at its ends in the first
// round.
struct RankRange {
  uint32_t low = 0;
  uint32_t high = kAll;
  bool open = true;
};

// Of all positive distances 64 bins for each power of two between 2^-2 and 2^6
// in the exponent of a weight: most of a row is within one or two of these
// powers, and tokens that share a bin wait for each other.
__device__ inline RankRange DistanceRange(float scale, uint32_t cut) {
  const uint32_t low = __float_as_uint(0x1p-2f / scale);
  const uint32_t high = min(__float_as_uint(64.0f / scale) - 1, cut);
  return {.low = min(low, high), .high = high};
}

template <typename Policy>
constexpr int kWarpsOf = Policy::kThreads / kWarpSize;

// Before anything else, and before the row is there. The first barrier comes
// with the maxima.
template <typename Policy>
__device__ void Clear(int vocab_size) {
  for (int i = threadIdx.x; i < kBins; i += Policy::kThreads) {
    OfBlock().counts[i] = 0;
  }
  if (threadIdx.x != 0) return;
  OfBlock().num_listed = OfBlock().num_found = 0;
  OfBlock().bin = -1;
  OfBlock().token = vocab_size;
}

// A number below `total` for one in (0, 1).
__device__ inline Mass Target(double uniform, Mass total) {
  const Mass target = static_cast<Mass>(uniform * static_cast<double>(total));
  return min(target, total - 1);
}

// What sums that reach `share` of the total are at least.
__device__ inline Mass Share(double share, Mass total) {
  const Mass bound =
      static_cast<Mass>(ceil(share * static_cast<double>(total)));
  return max(Mass{1}, min(bound, total));
}

__device__ inline Mass SumOverWarp(Mass sum) {
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  }
  return sum;
}

// All threads, as below wherever nothing else is said. Barriers before and
// after the shared sums.
template <typename Policy>
__device__ Mass SumOverBlock(Mass sum, Mass (&of_warps)[kMaxWarps]) {
  sum = SumOverWarp(sum);
  __syncthreads();
  if (Lane() == 0) of_warps[Warp()] = sum;
  __syncthreads();
  Mass total = 0;
#pragma unroll
  for (int w = 0; w < kWarpsOf<Policy>; ++w) total += of_warps[w];
  return total;
}

// The sum up to this thread's; and of all, through `of_warps`, with one
// barrier.
template <typename Policy>
__device__ Mass ScanOverBlock(Mass sum, Mass (&of_warps)[kMaxWarps],
                              Mass& total) {
#pragma unroll
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const Mass other = __shfl_up_sync(kAllLanes, sum, distance);
    if (Lane() >= distance) sum += other;
  }
  if (Lane() == kWarpSize - 1) of_warps[Warp()] = sum;
  __syncthreads();
  total = 0;
#pragma unroll
  for (int w = 0; w < kWarpsOf<Policy>; ++w) {
    if (w < Warp()) sum += of_warps[w];
    total += of_warps[w];
  }
  return sum;
}

// The sum of all, in the same way.
template <typename Policy>
__device__ Mass SumOnce(Mass sum, Mass (&of_warps)[kMaxWarps]) {
  sum = SumOverWarp(sum);
  if (Lane() == 0) of_warps[Warp()] = sum;
  __syncthreads();
  Mass total = 0;
#pragma unroll
  for (int w = 0; w < kWarpsOf<Policy>; ++w) total += of_warps[w];
  return total;
}

template <typename Policy>
__device__ void ClearBins() {
  __syncthreads();
  for (int i = threadIdx.x; i < kBins; i += Policy::kThreads) {
    OfBlock().counts[i] = 0;
    OfBlock().low[i] = OfBlock().high[i] = 0;
  }
  if (threadIdx.x == 0) OfBlock().bin = -1;
  __syncthreads();
}

__device__ inline void AddToBin(int bin, Mass mass) {
  const uint32_t low = static_cast<uint32_t>(mass);
  const uint32_t old = atomicAdd(&OfBlock().low[bin], low);
  const uint32_t high =
      static_cast<uint32_t>(mass >> 32) + (old + low < old ? 1 : 0);
  if (high != 0) atomicAdd(&OfBlock().high[bin], high);
}

// Ranks [low, high] in bins of 2^shift each; those beyond are at the ends.
__device__ inline int ShiftOf(uint32_t low, uint32_t high) {
  static_assert(kBins == 1 << 9);
  const int bits = high > low ? 32 - __clz(high - low) : 0;
  return max(0, bits - 9);
}

__device__ inline int BinOf(uint32_t rank, uint32_t low, uint32_t high,
                            int shift) {
  return static_cast<int>((min(max(rank, low), high) - low) >> shift);
}

// A thread's two bins: of masses, or of counts where those are what counts.
struct BinPair {
  int2 counts;
  Mass values[2];
};

template <bool kByMass>
__device__ BinPair ReadPair(int t) {
  BinPair pair;
  pair.counts = reinterpret_cast<const int2*>(OfBlock().counts)[t];
  if constexpr (kByMass) {
    const uint2 low = reinterpret_cast<const uint2*>(OfBlock().low)[t];
    const uint2 high = reinterpret_cast<const uint2*>(OfBlock().high)[t];
    pair.values[0] = Mass{high.x} << 32 | low.x;
    pair.values[1] = Mass{high.y} << 32 | low.y;
  } else {
    pair.values[0] = pair.counts.x;
    pair.values[1] = pair.counts.y;
  }
  return pair;
}

// A cluster: adds all blocks' bins up, in each of them. Each block does so for
// some bins, one lane for each block, and no other looks at these.
template <typename Policy>
__device__ void MergeBins(bool by_mass) {
  if (NumBlocks<Policy>() == 1) return;
  SyncCluster();
  const int num_blocks = NumBlocks<Policy>();
  const int rank = static_cast<int>(threadIdx.x) % num_blocks;
  for (int i = threadIdx.x; i < kBins; i += Policy::kThreads) {
    const int bin = BlockRank<Policy>() * (kBins / num_blocks) + i / num_blocks;
    int& at_count = InBlock(OfBlock().counts[bin], rank);
    uint32_t& at_low = InBlock(OfBlock().low[bin], rank);
    uint32_t& at_high = InBlock(OfBlock().high[bin], rank);
    int count = at_count;
    Mass mass = by_mass ? Mass{at_high} << 32 | at_low : 0;
    for (int distance = 1; distance < num_blocks; distance *= 2) {
      count += __shfl_xor_sync(kAllLanes, count, distance);
      mass += __shfl_xor_sync(kAllLanes, mass, distance);
    }
    at_count = count;
    if (!by_mass) continue;
    at_low = static_cast<uint32_t>(mass);
    at_high = static_cast<uint32_t>(mass >> 32);
  }
  SyncCluster();
}

// A cluster: the sum over all blocks.
template <typename Policy>
__device__ Mass SumOverCluster(Mass sum, Told what) {
  sum = SumOverBlock<Policy>(sum, OfBlock().sums);
  if (NumBlocks<Policy>() == 1) return sum;
  if (static_cast<int>(threadIdx.x) < NumBlocks<Policy>()) {
    InBlock(OfBlock().told[what][BlockRank<Policy>()], threadIdx.x) = sum;
  }
  SyncCluster();
  sum = 0;
  for (int r = 0; r < NumBlocks<Policy>(); ++r) sum += OfBlock().told[what][r];
  return sum;
}

// A cluster: puts what blocks have listed together, in each of them; false if
// that is too much for a list.
template <typename Policy>
__device__ bool MergeLists() {
  constexpr int kEach = kListSize / Policy::kThreads;
  const int num_blocks = NumBlocks<Policy>();
  if (num_blocks == 1) return OfBlock().num_listed <= kListSize;
  SyncCluster();
  if (Warp() == 0) {
    const int own =
        Lane() < num_blocks ? InBlock(OfBlock().num_listed, Lane()) : 0;
    int sum = own;
#pragma unroll
    for (int distance = 1; distance < kMaxCluster; distance *= 2) {
      const int other = __shfl_up_sync(kAllLanes, sum, distance);
      if (Lane() >= distance) sum += other;
    }
    if (Lane() < num_blocks) OfBlock().listed_before[Lane() + 1] = sum;
    if (Lane() == 0) OfBlock().listed_before[0] = 0;
  }
  __syncthreads();
  const int total = OfBlock().listed_before[num_blocks];
  Element elements[kEach];
  if (total <= kListSize) {
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int i = static_cast<int>(threadIdx.x) + e * Policy::kThreads;
      int rank = 0;
      for (int r = 1; r < num_blocks; ++r) {
        rank += OfBlock().listed_before[r] <= i;
      }
      if (i < total) {
        elements[e] =
            InBlock(OfBlock().list[i - OfBlock().listed_before[rank]], rank);
      }
    }
  }
  SyncCluster();
  if (threadIdx.x == 0) OfBlock().num_listed = total;
  if (total <= kListSize) {
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int i = static_cast<int>(threadIdx.x) + e * Policy::kThreads;
      if (i < total) OfBlock().list[i] = elements[e];
    }
  }
  __syncthreads();
  return total <= kListSize;
}

// Finds the first bin at which counts, or masses, reach `target`.
template <bool kByMass>
__device__ void FindBin(Mass target) {
  const int t = threadIdx.x;
  BinPair pair = {};
  Mass sum = 0;
  int count_sum = 0;
  if (t < kBins / 2) {
    pair = ReadPair<kByMass>(t);
    if (kByMass) sum = pair.values[0] + pair.values[1];
    count_sum = pair.counts.x + pair.counts.y;
#pragma unroll
    for (int distance = 1; distance < kWarpSize; distance *= 2) {
      const Mass other = kByMass ? __shfl_up_sync(kAllLanes, sum, distance) : 0;
      const int others = __shfl_up_sync(kAllLanes, count_sum, distance);
      if (Lane() >= distance) {
        sum += other;
        count_sum += others;
      }
    }
    if (Lane() == kWarpSize - 1) {
      OfBlock().sums[Warp()] = sum;
      OfBlock().count_sums[Warp()] = count_sum;
    }
  }
  __syncthreads();
  if (t < kBins / 2) {
#pragma unroll
    for (int w = 0; w < kScanWarps; ++w) {
      if (w >= Warp()) break;
      if (kByMass) sum += OfBlock().sums[w];
      count_sum += OfBlock().count_sums[w];
    }
    if (!kByMass) sum = count_sum;
    const Mass middle = sum - pair.values[1];
    const Mass before = middle - pair.values[0];
    if (before < target && target <= sum) {
      const bool second = target > middle;
      OfBlock().bin = 2 * t + second;
      OfBlock().before = second ? middle : before;
      OfBlock().of_bin = second ? pair.values[1] : pair.values[0];
      OfBlock().count = second ? pair.counts.y : pair.counts.x;
      OfBlock().count_up_to = count_sum - (second ? 0 : pair.counts.y);
    }
  }
  __syncthreads();
}

}  // namespace espalier::cuda_sample
