// The filters of a row (cuda_sample.cu). Each lowers the cut, the distance up
// to which tokens stay. typical_p has its own cut, of ranks by distance from
// the mean.
//
// A row with too many tokens for a list is usually read twice: for a histogram
// that gives the bin of the cut, and to list the tokens of that bin. The second
// pass also sums the tokens before the bin for each tile, which is all that a
// draw needs later. A bin with more tokens than a list holds takes another
// histogram first.
//
// Called by all threads of a block.
#pragma once

#include "kernels/sample/cuda_sample_tokens.cuh"
#include "kernels/sample/sample_filters.h"

namespace espalier::cuda_sample {

// The rank of a token, by one of two orders; lower ranks are kept first.
struct ByDistance {
  static constexpr bool kIsDistance = true;
  template <typename Row>
  __device__ static uint32_t Of(const Row&, uint32_t distance) {
    return distance;
  }
};
struct ByTypicality {
  static constexpr bool kIsDistance = false;
  template <typename Row>
  __device__ static uint32_t Of(const Row& row, uint32_t distance) {
    return row.TypicalRankOf(distance);
  }
};

template <typename T, typename Policy>
class RowFilter : public RowTokens<T, Policy> {
 public:
  using Base = RowTokens<T, Policy>;
  using Base::Base;

 protected:
  using Base::CompactSurvivors;
  using Base::cut_;
  using Base::DistanceOf;
  using Base::ExponentOf;
  using Base::Floor;
  using Base::ForEach;
  using Base::ForEachDistance;
  using Base::ForEachOf;
  using Base::ForEachQuarter;
  using Base::has_tiles_;
  using Base::is_listed_;
  using Base::is_typical_;
  using Base::Keeps;
  using Base::kept_;
  using Base::List;
  using Base::ListHeld;
  using Base::MassOfTiles;
  using Base::maxima_;
  using Base::mean_;
  using Base::num_tiles_;
  using Base::scale_;
  using Base::TightenThreshold;
  using Base::typical_cut_;
  using Base::vocab_size_;
  using Base::WeightOf;

  __device__ bool HasTopK(const SamplingParams& params) const {
    return espalier::HasTopK(params, vocab_size_);
  }
  // Applies min_p, and a first bound of top_k; returns true if the tokens left
  // are listed. With a held row, the first block has the list.
  template <typename Held = NoRegisterTile>
  __device__ bool BoundFew(const RowOptions& options, const Held& held = {}) {
    TightenThreshold(options.min_p_cut);
    if (HasTopK(options.params)) BoundTopK(options.params.top_k);
    if constexpr (Held::kHolds) {
      if (cut_ != kAll) return ListHeld(held);
      SyncCluster();  // What other blocks wrote is visible.
      return false;
    }
    return cut_ != kAll && CompactSurvivors();
  }
  // Applies the filters after BoundFew, however many tokens they leave.
  __device__ void Filter(const SamplingParams& params) {
    if (HasTopK(params))
      TightenThreshold(FindByDistance(/*by_mass=*/false, params.top_k));
    if (params.top_p < 1.0f) TopP(params.top_p, KeepsFew(params, vocab_size_));
    if (params.typical_p < 1.0f) Typical(params.typical_p);
  }

  // Returns the mass of the tokens left.
  __device__ Mass Kept() { return kept_ != 0 ? kept_ : SumKept(); }

  __device__ Mass SumKept() { return is_listed_ ? SumListed() : SumTiles(); }

  // Returns the log of the number of tiles that share a bin, a power of two.
  __device__ int TileShift() const {
    int shift = 0;
    while ((num_tiles_ - 1) >> shift >= kBins) ++shift;
    return shift;
  }

  // Sums the kept tokens of tiles [first, end), 2^shift tiles in a bin.
  __device__ __noinline__ void SumTilesOf(int first, int end, int shift) {
    ClearBins<Policy, BinsOf::kTiles>();
    RowFilter row = *this;
    const float floor = row.Floor();
    row.ForEachQuarter(first, end, [&](const LaneTokens<T>& tokens) {
      Mass sum = 0;
      row.ForEachOf(tokens, floor, [&](uint32_t distance, int) {
        if (row.Keeps(distance)) sum += row.WeightOf(distance);
      });
      AddQuarter(tokens.quarter / kQuarters - first, shift, sum);
    });
    MergeBins<Policy, BinsOf::kTiles>();
  }

  // Returns the lowest rank at which the number of tokens up to it, or their
  // mass, reaches `target`, or a higher rank with no other token in between;
  // kAll if the target is not reached.
  template <typename Rank>
  __device__ __forceinline__ uint32_t FindThreshold(bool by_mass, Mass target,
                                                    const RankRange& range) {
    RadixSelect search(range, target, by_mass);
    bool in_list = is_listed_;
    bool is_collected = false;  // the list has the tokens in question
    has_tiles_ = false;
    kept_ = 0;
#pragma unroll 1
    for (;;) {
      search.BeginRound<Policy>();
      AddAll<Rank>(search, in_list, /*within_cut=*/!is_collected);
      if (!search.EndRound<Policy>(/*shared_out=*/!in_list)) return kAll;
      if (by_mass) kept_ = search.reached();
      if (search.is_exact() || search.count() == 1) break;
      if (in_list) continue;
      if (Rank::kIsDistance && search.count_up_to() <= kListSize) {
        TightenThreshold(search.high());
        in_list = is_listed_ = List(0, num_tiles_);
      } else if (search.count() <= kListSize) {
        Collect<Rank>(search.low(), search.high());
        in_list = is_collected = true;
      }
    }
    if (is_collected) AddCollected<Rank>(search.high());
    return search.high();
  }

  __device__ __noinline__ uint32_t FindByDistance(bool by_mass, Mass target) {
    return FindThreshold<ByDistance>(by_mass, target,
                                     DistanceRange(scale_, cut_));
  }

 private:
  friend ByTypicality;

  __device__ Mass SumListed() {
    Mass sum = 0;
    ForEach([&](uint32_t distance, int) {
      if (Keeps(distance)) sum += WeightOf(distance);
    });
    return SumOverBlock<Policy>(sum, SharedStorage().sums);
  }

  __device__ Mass SumTiles() {
    SumTilesOf(0, num_tiles_, TileShift());
    has_tiles_ = true;
    return SumOfTileBins();
  }
  __device__ Mass SumOfTileBins() {
    Mass sum = 0;
    for (int i = threadIdx.x; i < kBins; i += Policy::kThreads) {
      sum += Mass{SharedStorage().of_tiles.high[i]} << 32 |
             SharedStorage().of_tiles.low[i];
    }
    return SumOverBlock<Policy>(sum, SharedStorage().sums);
  }

  // One warp: adds its lanes' sums of a quarter of a tile.
  __device__ static void AddQuarter(int tile, int shift, Mass sum) {
    sum = SumOverWarp(sum);
    if (Lane() == 0 && sum != 0) AddToBin<BinsOf::kTiles>(tile >> shift, sum);
  }

  // Runs a round of a search among the tokens within the cut, or among all
  // listed ones.
  template <typename Rank>
  __device__ __noinline__ void AddAll(RadixSelect search, bool in_list,
                                      bool within_cut) {
    RowFilter row = *this;
    const auto add = [&](uint32_t distance) {
      search.Add(Rank::Of(row, distance),
                 [&] { return row.WeightOf(distance); });
    };
    if (!in_list) return row.ForEachDistance(add);
    for (int i = threadIdx.x; i < SharedStorage().num_listed;
         i += Policy::kThreads) {
      const uint32_t distance = SharedStorage().list[i].distance;
      if (!within_cut || distance <= row.cut_) add(distance);
    }
  }

  // Lists the tokens in a bin of ranks, and sums the tokens before it, by tile.
  template <typename Rank>
  __device__ __noinline__ void Collect(uint32_t low, uint32_t high) {
    ClearBins<Policy, BinsOf::kTiles>();
    if (threadIdx.x == 0) SharedStorage().num_listed = 0;
    const int shift = TileShift();
    RowFilter row = *this;
    const float floor = row.Floor();
    row.ForEachQuarter(0, num_tiles_, [&](const LaneTokens<T>& tokens) {
      Mass sum = 0;
      row.ForEachOf(tokens, floor, [&](uint32_t distance, int token) {
        const uint32_t rank = Rank::Of(row, distance);
        if (rank < low) {
          sum += row.WeightOf(distance);
        } else if (rank <= high) {
          row.Append(distance, token);
        }
      });
      AddQuarter(tokens.quarter / kQuarters, shift, sum);
    });
    MergeBins<Policy, BinsOf::kTiles>();
    MergeLists<Policy>();
  }

  // Adds the collected tokens within a cut to the sums.
  template <typename Rank>
  __device__ void AddCollected(uint32_t cut) {
    const int shift = TileShift();
    __syncthreads();
    for (int i = threadIdx.x; i < SharedStorage().num_listed;
         i += Policy::kThreads) {
      const Element element = SharedStorage().list[i];
      if (Rank::Of(*this, element.distance) > cut) continue;
      AddToBin<BinsOf::kTiles>(element.token / kTileSize >> shift,
                               element.weight);
    }
    __syncthreads();
    has_tiles_ = true;
    kept_ = SumOfTileBins();
  }

  // Bounds the distance of the k-th token by the maxima of quarters: at least k
  // tokens are no further than the k-th best maximum.
  __device__ void BoundTopK(int k) {
    const int num_quarters = num_tiles_ * kQuarters;
    if (k > num_quarters) return;
    const RankRange range = DistanceRange(scale_, cut_);
    const int shift = ShiftOf(range.low, range.high);
    int num_within = 0;
    for (int base = 0; base < num_quarters; base += Policy::kThreads) {
      const int q = base + static_cast<int>(threadIdx.x);
      const uint32_t distance =
          q < num_quarters ? DistanceOf(maxima_[q]) : kNever;
      const bool is_within = distance <= cut_;
      if (is_within) {
        atomicAdd(&SharedStorage()
                       .counts[BinOf(distance, range.low, range.high, shift)],
                  1);
      }
      num_within += __syncthreads_count(is_within);
    }
    if (num_within < k) return;
    FindDigit<BinsOf::kCounts>(k);
    if (SharedStorage().bin < 0) return;
    const uint32_t end =
        range.low + (static_cast<uint32_t>(SharedStorage().bin + 1) << shift) -
        1;
    // The last bin includes all greater distances.
    if (end < range.high) TightenThreshold(end);
  }

  // `few`: filters other than top_p have dropped tokens.
  __device__ void TopP(float top_p, bool few) {
    Mass total;
    if (few) {
      total = Kept();
    } else {
      // Tokens further than this have together no more mass than top_p drops.
      total = MassOfTiles();
      const double rest = (1.0 - top_p) * static_cast<double>(total) / kUnit;
      const double exponent = log2(vocab_size_ / rest) * (1 + 1e-5) + 1e-5;
      TightenThreshold(__float_as_uint(
          static_cast<float>(fmax(exponent, 0.0) / double{scale_})));
    }
    TightenThreshold(FindByDistance(/*by_mass=*/true, Share(top_p, total)));
  }

  __device__ __noinline__ void Typical(float typical_p) {
    Mass sum = 0;
    Mass weighted = 0;
    RowFilter row = *this;
    row.ForEach([&](uint32_t distance, int) {
      const float exponent = row.ExponentOf(distance);
      const float weight = Exp2(-exponent);
      sum += row.WeightOf(distance);
      if (weight > 0) weighted += __float2ull_rz(weight * exponent * kUnit);
    });
    if (is_listed_) {
      sum = SumOverBlock<Policy>(sum, SharedStorage().sums);
      weighted = SumOverBlock<Policy>(weighted, SharedStorage().sums);
    } else {
      sum = SumOverCluster<Policy>(sum, kTypicalMass);
      weighted = SumOverCluster<Policy>(weighted, kWeightedDistances);
    }
    row.mean_ = mean_ = static_cast<float>(static_cast<double>(weighted) /
                                           static_cast<double>(sum));
    typical_cut_ = FindThreshold<ByTypicality>(
        /*by_mass=*/true, Share(typical_p, sum), DistanceRange(1.0f, kAll));
    is_typical_ = true;
  }
};

}  // namespace espalier::cuda_sample
