// Histograms of a row and radix select on them (cuda_sample.cu). A round counts
// elements, or adds their masses, in bins of equal ranges of ranks and finds
// the bin in which the target is reached. The next round divides that bin. Sums
// are of integers, so that the order of additions changes no bit.
//
// Called by all threads unless a comment says otherwise.
#pragma once

#include "kernels/sample/cuda_sample_block.cuh"

namespace espalier::cuda_sample {

// The ranks of a search; lower ranks come first. If `open`, ranks outside [low,
// high] share the bins at its ends in the first round.
struct RankRange {
  uint32_t low = 0;
  uint32_t high = kAll;
  bool open = true;
};

// Returns a range with 64 bins for each power of two between 2^-2 and 2^6 in
// the exponent of a weight. Most of a row is within one or two of these powers,
// and atomic additions to one bin serialise.
__device__ inline RankRange DistanceRange(float scale, uint32_t cut) {
  const uint32_t low = __float_as_uint(0x1p-2f / scale);
  const uint32_t high = min(__float_as_uint(64.0f / scale) - 1, cut);
  return {.low = min(low, high), .high = high};
}

// Returns the shift of bins of 2^shift ranks each in [low, high]. The bins at
// the ends include all ranks beyond.
__device__ inline int ShiftOf(uint32_t low, uint32_t high) {
  static_assert(kBins == 1 << 9);
  const int bits = high > low ? 32 - __clz(high - low) : 0;
  return max(0, bits - 9);
}
__device__ inline int BinOf(uint32_t rank, uint32_t low, uint32_t high,
                            int shift) {
  return static_cast<int>((min(max(rank, low), high) - low) >> shift);
}

// The histograms of a block.
enum class BinsOf { kCounts, kMasses, kTiles };

template <BinsOf kOf>
__device__ inline MassBins& MassesOf() {
  return kOf == BinsOf::kTiles ? SharedStorage().of_tiles
                               : SharedStorage().masses;
}

// Called by one thread.
template <BinsOf kOf = BinsOf::kMasses>
__device__ void AddToBin(int bin, Mass mass) {
  const uint32_t low = static_cast<uint32_t>(mass);
  const uint32_t old = atomicAdd(&MassesOf<kOf>().low[bin], low);
  const uint32_t high =
      static_cast<uint32_t>(mass >> 32) + (old + low < old ? 1 : 0);
  if (high != 0) atomicAdd(&MassesOf<kOf>().high[bin], high);
}

template <typename Policy, BinsOf kOf = BinsOf::kMasses>
__device__ void ClearBins() {
  __syncthreads();
  for (int i = threadIdx.x; i < kBins; i += Policy::kThreads) {
    MassesOf<kOf>().low[i] = MassesOf<kOf>().high[i] = 0;
    if (kOf != BinsOf::kTiles) SharedStorage().counts[i] = 0;
  }
  if (threadIdx.x == 0) SharedStorage().bin = -1;
  __syncthreads();
}

// A cluster: adds the bins of all blocks, in each of them. Each block adds some
// of the bins, one lane for each block, and no other block reads these
// meanwhile.
template <typename Policy, BinsOf kOf>
__device__ void MergeBins() {
  __syncthreads();
  if (NumBlocks<Policy>() == 1) return;
  SyncCluster();
  const int num_blocks = NumBlocks<Policy>();
  const int rank = static_cast<int>(threadIdx.x) % num_blocks;
  for (int i = threadIdx.x; i < kBins; i += Policy::kThreads) {
    const int bin = BlockRank<Policy>() * (kBins / num_blocks) + i / num_blocks;
    if constexpr (kOf != BinsOf::kTiles) {
      int& at_count = MapSharedRank(SharedStorage().counts[bin], rank);
      int count = at_count;
      for (int distance = 1; distance < num_blocks; distance *= 2) {
        count += __shfl_xor_sync(kAllLanes, count, distance);
      }
      at_count = count;
    }
    if constexpr (kOf != BinsOf::kCounts) {
      uint32_t& at_low = MapSharedRank(MassesOf<kOf>().low[bin], rank);
      uint32_t& at_high = MapSharedRank(MassesOf<kOf>().high[bin], rank);
      Mass mass = Mass{at_high} << 32 | at_low;
      for (int distance = 1; distance < num_blocks; distance *= 2) {
        mass += __shfl_xor_sync(kAllLanes, mass, distance);
      }
      at_low = static_cast<uint32_t>(mass);
      at_high = static_cast<uint32_t>(mass >> 32);
    }
  }
  SyncCluster();
}

// A thread's two bins: of masses, or of counts in a search by counts.
struct BinPair {
  int2 counts = {};
  Mass values[2] = {};
};

template <BinsOf kOf>
__device__ BinPair ReadPair(int t) {
  BinPair pair;
  if (kOf != BinsOf::kTiles) {
    pair.counts = reinterpret_cast<const int2*>(SharedStorage().counts)[t];
  }
  if constexpr (kOf == BinsOf::kCounts) {
    pair.values[0] = pair.counts.x;
    pair.values[1] = pair.counts.y;
  } else {
    const uint2 low = reinterpret_cast<const uint2*>(MassesOf<kOf>().low)[t];
    const uint2 high = reinterpret_cast<const uint2*>(MassesOf<kOf>().high)[t];
    pair.values[0] = Mass{high.x} << 32 | low.x;
    pair.values[1] = Mass{high.y} << 32 | low.y;
  }
  return pair;
}

// Finds the first bin at which counts, or masses, reach `target`.
template <BinsOf kOf>
__device__ void FindDigit(Mass target) {
  constexpr bool kByMass = kOf != BinsOf::kCounts;
  const int t = threadIdx.x;
  BinPair pair;
  Mass sum = 0;
  int count_sum = 0;
  if (t < kBins / 2) {
    pair = ReadPair<kOf>(t);
    if (kByMass) sum = pair.values[0] + pair.values[1];
    count_sum = pair.counts.x + pair.counts.y;
    if (kByMass) sum = WarpInclusiveSum(sum);
    count_sum = WarpInclusiveSum(count_sum);
    if (Lane() == kWarpSize - 1) {
      SharedStorage().sums[Warp()] = sum;
      SharedStorage().count_sums[Warp()] = count_sum;
    }
  }
  __syncthreads();
  if (t < kBins / 2) {
#pragma unroll
    for (int w = 0; w < kScanWarps; ++w) {
      if (w >= Warp()) break;
      if (kByMass) sum += SharedStorage().sums[w];
      count_sum += SharedStorage().count_sums[w];
    }
    if (!kByMass) sum = count_sum;
    const Mass middle = sum - pair.values[1];
    const Mass before = middle - pair.values[0];
    if (before < target && target <= sum) {
      const bool second = target > middle;
      SharedStorage().bin = 2 * t + second;
      SharedStorage().before = second ? middle : before;
      SharedStorage().of_bin = second ? pair.values[1] : pair.values[0];
      SharedStorage().count = second ? pair.counts.y : pair.counts.x;
      SharedStorage().count_up_to = count_sum - (second ? 0 : pair.counts.y);
    }
  }
  __syncthreads();
}

// A radix select of the lowest rank at which the number of elements up to it,
// or their mass, reaches a target.
class RadixSelect {
 public:
  __device__ RadixSelect(const RankRange& range, Mass target, bool by_mass)
      : low_(range.low),
        high_(range.high),
        open_(range.open),
        by_mass_(by_mass),
        target_(target) {}

  template <typename Policy>
  __device__ void BeginRound() {
    shift_ = ShiftOf(low_, high_);
    ClearBins<Policy>();
  }
  // One thread: adds an element if its rank is in the current range.
  template <typename MassOf>
  __device__ void Add(uint32_t rank, const MassOf& mass_of) const {
    if (!open_ && (rank < low_ || rank > high_)) return;
    const int bin = BinOf(rank, low_, high_, shift_);
    atomicAdd(&SharedStorage().counts[bin], 1);
    if (by_mass_) AddToBin(bin, mass_of());
  }
  // Call after all elements were added, by all blocks of a cluster if these
  // divide them. Returns false if they do not reach the target.
  template <typename Policy>
  __device__ bool EndRound(bool shared_out) {
    __syncthreads();
    if (by_mass_) {
      if (shared_out) MergeBins<Policy, BinsOf::kMasses>();
      FindDigit<BinsOf::kMasses>(target_);
    } else {
      if (shared_out) MergeBins<Policy, BinsOf::kCounts>();
      FindDigit<BinsOf::kCounts>(target_);
    }
    const int bin = SharedStorage().bin;
    if (bin < 0) return false;
    target_ -= SharedStorage().before;
    passed_ += SharedStorage().before;
    num_passed_ += SharedStorage().count_up_to - SharedStorage().count;
    const uint32_t begin = low_ + (static_cast<uint32_t>(bin) << shift_);
    const uint32_t end = min(high_, begin + ((1u << shift_) - 1));
    high_ = open_ && end == high_ ? kAll : end;
    low_ = open_ && bin == 0 ? 0 : begin;
    open_ = false;
    return true;
  }

  // Bounds of the ranks that the search has narrowed down to.
  __device__ uint32_t low() const { return low_; }
  __device__ uint32_t high() const { return high_; }
  __device__ bool is_exact() const { return high_ == low_; }
  // Elements in that range, elements up to its end, and the mass of the latter.
  __device__ int count() const { return SharedStorage().count; }
  __device__ int count_up_to() const { return num_passed_ + count(); }
  __device__ Mass reached() const { return passed_ + SharedStorage().of_bin; }

 private:
  uint32_t low_;
  uint32_t high_;
  bool open_;
  bool by_mass_;
  int shift_ = 0;
  Mass target_;
  Mass passed_ = 0;
  int num_passed_ = 0;
};

}  // namespace espalier::cuda_sample
