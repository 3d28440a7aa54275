// Shared memory of a block that samples one token (cuda_sample.cu): a short
// list of tokens, histograms, and reductions over its threads.
#pragma once

#include "kernels/cuda_warp_scan.cuh"
#include "kernels/sample/cuda_sample_cluster.cuh"
#include "kernels/sample/cuda_sample_row.cuh"

namespace espalier::cuda_sample {

using Mass = unsigned long long;  // a sum of weights, in 2^-40

constexpr float kUnit = 0x1p40f;

// Bins of a round of a search, two for each of the threads that add them.
constexpr int kBins = 512;
constexpr int kScanWarps = kBins / 2 / kWarpSize;
// Capacity for tokens of a block: enough for top_k of 50 or 1,000, and for most
// nuclei. 32 KiB, so that four blocks share a multiprocessor.
constexpr int kListSize = 2048;
// Up to this many tokens, each is compared with all others.
constexpr int kShortList = 128;

// Up to one draw for each multiprocessor: the longest path of a thread decides.
struct SmallBatchPolicy {
  static constexpr int kThreads = 512;
  static constexpr int kMinBlocks = 1;
  // Up to half as many draws have several blocks each.
  static constexpr bool kClusters = true;
};
// More draws: four blocks a multiprocessor hide each other's memory latency.
struct LargeBatchPolicy {
  static constexpr int kThreads = 256;
  static constexpr int kMinBlocks = 4;
  static constexpr bool kClusters = false;
};
constexpr int kMaxThreads = SmallBatchPolicy::kThreads;
constexpr int kMaxWarps = kMaxThreads / kWarpSize;
// Quarters that a warp has in flight: if few of them are read, and else.
constexpr int kFewAtOnce = 4;
constexpr int kQuartersAtOnce = 2;
// Returned by every thread except the leader.
constexpr TokenId kNotLeader = -3;
// Sums that blocks of a cluster exchange, each once.
enum ClusterSum { kTypicalMass, kWeightedDistances, kNumClusterSums };

struct alignas(16) Element {
  uint32_t distance;
  int token;
  Mass weight;
};

// Sums of masses in two 32-bit halves, which are added atomically one by one.
struct MassBins {
  alignas(8) uint32_t low[kBins];
  alignas(8) uint32_t high[kBins];
};

struct Shared {
  alignas(8) int counts[kBins];
  MassBins masses;
  MassBins of_tiles;  // per tile: mass of the tokens left
  Element list[kListSize];
  int num_listed;
  int num_held;            // listed elements, in all blocks of a cluster
  int found[kMaxThreads];  // quarters that may hold tokens within the cut
  int num_found;
  Mass sums[kMaxWarps];
  Mass more_sums[kMaxWarps];
  uint32_t furthest[kMaxWarps];
  int count_sums[kScanWarps];
  int token;
  // The row before edits.
  float raw_max;
  float log_sum;
  // The bin in which a search ends; -1 if the target is not reached.
  int bin;
  Mass before;      // mass in the bins before it
  Mass of_bin;      // mass in it
  int count;        // elements in it
  int count_up_to;  // elements in it and before it
  int tile;         // tile in which a draw ends
  Mass before_tile;
  Mass of_tile;
  // By block of the cluster.
  Mass cluster_sums[kNumClusterSums][kMaxCluster];
  int listed_before[kMaxCluster + 1];
};

// Returns the block's shared storage. A named object, because functions that
// are not inlined would access a reference by generic addresses, also for
// atomics.
__device__ inline Shared& SharedStorage() {
  __shared__ Shared shared;
  return shared;
}

template <typename Policy>
constexpr int kWarpsOf = Policy::kThreads / kWarpSize;

// Runs first, before the row is complete.
template <typename Policy>
__device__ void Clear(int vocab_size) {
  for (int i = threadIdx.x; i < kBins; i += Policy::kThreads) {
    SharedStorage().counts[i] = 0;
  }
  if (threadIdx.x == 0) {
    SharedStorage().bin = -1;
    SharedStorage().num_listed = SharedStorage().num_held =
        SharedStorage().num_found = 0;
    SharedStorage().token = vocab_size;
  }
  __syncthreads();
}

// Maps `uniform` in (0, 1) to a mass below `total`.
__device__ inline Mass Target(double uniform, Mass total) {
  const Mass target = static_cast<Mass>(uniform * static_cast<double>(total));
  return min(target, total - 1);
}

// Returns the least sum of weights that counts as `share` of the total.
__device__ inline Mass Share(double share, Mass total) {
  const Mass bound =
      static_cast<Mass>(ceil(share * static_cast<double>(total)));
  return max(Mass{1}, min(bound, total));
}

// Sums three parts of up to 22 bits, each with one warp reduction.
__device__ inline Mass SumOverWarp(Mass sum) {
  constexpr int kBits = 21;
  const auto sum_from = [&](int bit, Mass mask) -> Mass {
    return __reduce_add_sync(kAllLanes,
                             static_cast<unsigned>(sum >> bit & mask));
  };
  constexpr Mass kMask = (Mass{1} << kBits) - 1;
  return sum_from(0, kMask) + (sum_from(kBits, kMask) << kBits) +
         (sum_from(2 * kBits, ~Mass{0}) << 2 * kBits);
}

// Returns the sum of the warps' partial sums.
template <typename Policy>
__device__ Mass SumOfWarps(const Mass (&of_warps)[kMaxWarps]) {
  return SumOverWarp(Lane() < kWarpsOf<Policy> ? of_warps[Lane()] : 0);
}

// Called by all threads, as are the functions below unless a comment says
// otherwise. Has barriers before and after the shared sums are written.
template <typename Policy>
__device__ Mass SumOverBlock(Mass sum, Mass (&of_warps)[kMaxWarps]) {
  sum = SumOverWarp(sum);
  __syncthreads();
  if (Lane() == 0) of_warps[Warp()] = sum;
  __syncthreads();
  return SumOfWarps<Policy>(of_warps);
}

// Returns the sum up to this thread's value, and the total, through `of_warps`,
// with one barrier.
template <typename Policy>
__device__ Mass BlockInclusiveScan(Mass sum, Mass (&of_warps)[kMaxWarps],
                                   Mass& total) {
  sum = WarpInclusiveSum(sum);
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

// Returns the sum over the block, in the same way.
template <typename Policy>
__device__ Mass BlockSum(Mass sum, Mass (&of_warps)[kMaxWarps]) {
  sum = SumOverWarp(sum);
  if (Lane() == 0) of_warps[Warp()] = sum;
  __syncthreads();
  return SumOfWarps<Policy>(of_warps);
}

// A cluster: returns the sum over all blocks.
template <typename Policy>
__device__ Mass SumOverCluster(Mass sum, ClusterSum what) {
  sum = SumOverBlock<Policy>(sum, SharedStorage().sums);
  if (NumBlocks<Policy>() == 1) return sum;
  if (static_cast<int>(threadIdx.x) < NumBlocks<Policy>()) {
    MapSharedRank(SharedStorage().cluster_sums[what][BlockRank<Policy>()],
                  threadIdx.x) = sum;
  }
  SyncCluster();
  sum = 0;
  for (int r = 0; r < NumBlocks<Policy>(); ++r)
    sum += SharedStorage().cluster_sums[what][r];
  return sum;
}

// A cluster: merges the lists of all blocks, in each of them. Returns false if
// the result is too long for a list.
template <typename Policy>
__device__ bool MergeLists() {
  constexpr int kEach = kListSize / Policy::kThreads;
  const int num_blocks = NumBlocks<Policy>();
  if (num_blocks == 1) return SharedStorage().num_listed <= kListSize;
  SyncCluster();
  if (Warp() == 0) {
    const int own = Lane() < num_blocks
                        ? MapSharedRank(SharedStorage().num_listed, Lane())
                        : 0;
    const int sum = WarpInclusiveSum(own);
    if (Lane() < num_blocks) SharedStorage().listed_before[Lane() + 1] = sum;
    if (Lane() == 0) SharedStorage().listed_before[0] = 0;
  }
  __syncthreads();
  const int total = SharedStorage().listed_before[num_blocks];
  Element elements[kEach];
  if (total <= kListSize) {
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int i = static_cast<int>(threadIdx.x) + e * Policy::kThreads;
      int rank = 0;
      for (int r = 1; r < num_blocks; ++r) {
        rank += SharedStorage().listed_before[r] <= i;
      }
      if (i < total) {
        elements[e] = MapSharedRank(
            SharedStorage().list[i - SharedStorage().listed_before[rank]],
            rank);
      }
    }
  }
  SyncCluster();
  if (threadIdx.x == 0) SharedStorage().num_listed = total;
  if (total <= kListSize) {
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int i = static_cast<int>(threadIdx.x) + e * Policy::kThreads;
      if (i < total) SharedStorage().list[i] = elements[e];
    }
  }
  __syncthreads();
  return total <= kListSize;
}

}  // namespace espalier::cuda_sample
