// What filters leave of a row (cuda_sample.cu): each lowers the cut, the
// distance up to which tokens stay; typical_p has a cut of its own, of ranks
// by distance from the mean. Cuts are found by histograms
// (cuda_sample_block.cuh).
//
// All threads of a block.
#pragma once

#include "kernels/sample/cuda_sample_tokens.cuh"

namespace espalier::cuda_sample {

template <typename T, typename Policy>
class RowFilter : public RowTokens<T, Policy> {
 public:
  using Base = RowTokens<T, Policy>;
  using Base::Base;

 protected:
  using Base::cut_;
  using Base::DistanceOf;
  using Base::ExponentOf;
  using Base::ForEach;
  using Base::is_listed_;
  using Base::is_typical_;
  using Base::Keeps;
  using Base::kept_;
  using Base::List;
  using Base::ListFew;
  using Base::Lower;
  using Base::MassOfTiles;
  using Base::maxima_;
  using Base::mean_;
  using Base::num_tiles_;
  using Base::scale_;
  using Base::typical_cut_;
  using Base::TypicalRankOf;
  using Base::vocab_size_;
  using Base::WeightOf;

  __device__ bool HasTopK(const SamplingParams& params) const {
    return params.top_k > 0 && params.top_k < vocab_size_;
  }
  // min_p, and a first bound of top_k; whether what that leaves is listed.
  __device__ bool BoundFew(const SamplingParams& params) {
    if (params.min_p > 0.0f) MinP(params);
    if (HasTopK(params)) BoundTopK(params.top_k);
    return cut_ != kAll && ListFew();
  }
  // The filters after that, however much they leave.
  __device__ void Filter(const SamplingParams& params) {
    const bool top_k = HasTopK(params);
    if (top_k) Lower(FindByDistance(/*by_mass=*/false, params.top_k));
    if (params.top_p < 1.0f) TopP(params.top_p, top_k || params.min_p > 0.0f);
    if (params.typical_p < 1.0f) Typical(params.typical_p);
  }

  // The mass of what is left.
  __device__ Mass Kept() { return kept_ != 0 ? kept_ : SumKept(); }

  __device__ __noinline__ Mass SumKept() {
    RowFilter row = *this;
    Mass sum = 0;
    row.ForEach([&](uint32_t distance, int) {
      if (row.Keeps(distance)) sum += row.WeightOf(distance);
    });
    return is_listed_ ? SumOverBlock<Policy>(sum, OfBlock().sums)
                      : SumOverCluster<Policy>(sum, kToldKept);
  }

  // The lowest rank at which the number of elements of that rank or a lower
  // one, or their mass, reaches `target`; kAll if nothing does. Elements are
  // those for which for_each calls visit(rank, mass). After each round,
  // narrowed(end, count, sum) is told that this many elements, by count at
  // least, are not beyond `end`, and their sum of what is added up. If not
  // `exact`, the answer may be a higher rank that no other element has or is
  // below.
  template <typename ForEachRank, typename Narrowed>
  __device__ __forceinline__ uint32_t Find(bool by_mass, Mass target,
                                           RankRange range, bool exact,
                                           int max_rounds,
                                           const ForEachRank& for_each,
                                           const Narrowed& narrowed) {
    uint32_t low = range.low;
    uint32_t high = range.high;
    bool open = range.open;
    Mass passed = 0;
#pragma unroll 1
    for (int round = 0; round < max_rounds; ++round) {
      const int shift = ShiftOf(low, high);
      const bool is_listed = is_listed_;
      ClearBins<Policy>();
      for_each([&](uint32_t rank, Mass mass) {
        if (!open && (rank < low || rank > high)) return;
        const int bin = BinOf(rank, low, high, shift);
        atomicAdd(&OfBlock().counts[bin], 1);
        if (by_mass) AddToBin(bin, mass);
      });
      __syncthreads();
      if (!is_listed) MergeBins<Policy>(by_mass);
      if (by_mass) {
        FindBin<true>(target);
      } else {
        FindBin<false>(target);
      }
      const int bin = OfBlock().bin;
      if (bin < 0) return kAll;
      target -= OfBlock().before;
      passed += OfBlock().before;
      const Mass reached = passed + OfBlock().of_bin;
      const int count = OfBlock().count;
      const int count_up_to = OfBlock().count_up_to;
      const uint32_t begin = low + (static_cast<uint32_t>(bin) << shift);
      const uint32_t end = min(high, begin + ((1u << shift) - 1));
      high = open && end == high ? kAll : end;
      low = open && bin == 0 ? 0 : begin;
      open = false;
      narrowed(high, count_up_to, reached);
      if (high == low || (!exact && count == 1)) break;
    }
    return high;
  }

  // By distance, among those within the cut: how far one may be.
  __device__ __noinline__ uint32_t FindByDistance(bool by_mass, Mass target) {
    return Find(
        by_mass, target, DistanceRange(scale_, cut_), /*exact=*/false, 32,
        [&](const auto& visit) {
          RowFilter row = *this;
          row.ForEach([&](uint32_t distance, int) {
            visit(distance, by_mass ? row.WeightOf(distance) : 0);
          });
        },
        [&](uint32_t end, int count, Mass sum) {
          kept_ = by_mass ? sum : 0;
          if (is_listed_ || count > kListSize) return;
          Lower(end);
          is_listed_ = List(0, num_tiles_);
        });
  }

 private:
  __device__ void MinP(const SamplingParams& params) {
    Lower(__float_as_uint(fabsf(params.temperature * logf(params.min_p))));
  }

  // Quarters' maxima say how far the k-th can be: at least k tokens are not
  // further than the k-th best of them.
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
        atomicAdd(
            &OfBlock().counts[BinOf(distance, range.low, range.high, shift)],
            1);
      }
      num_within += __syncthreads_count(is_within);
    }
    if (num_within < k) return;
    FindBin<false>(k);
    if (OfBlock().bin < 0) return;
    const uint32_t end =
        range.low + (static_cast<uint32_t>(OfBlock().bin + 1) << shift) - 1;
    // The last bin has what is beyond, too.
    if (end < range.high) Lower(end);
  }

  // `few`: others than top_p have put tokens out.
  __device__ void TopP(float top_p, bool few) {
    Mass total;
    if (few) {
      total = SumKept();
    } else {
      // All tokens together that are further than this have no more than what
      // top_p leaves out.
      total = MassOfTiles();
      const double rest = (1.0 - top_p) * static_cast<double>(total) / kUnit;
      const double exponent = log2(vocab_size_ / rest) * (1 + 1e-5) + 1e-5;
      Lower(__float_as_uint(
          static_cast<float>(fmax(exponent, 0.0) / double{scale_})));
    }
    Lower(FindByDistance(/*by_mass=*/true, Share(top_p, total)));
  }

  __device__ __noinline__ void Typical(float typical_p) {
    Mass sum = 0;
    Mass weighted = 0;
    RowFilter row = *this;
    row.ForEach([&](uint32_t distance, int) {
      const float exponent = row.ExponentOf(distance);
      const float weight = FastExp2(-exponent);
      sum += row.WeightOf(distance);
      if (weight > 0) weighted += __float2ull_rz(weight * exponent * kUnit);
    });
    if (is_listed_) {
      sum = SumOverBlock<Policy>(sum, OfBlock().sums);
      weighted = SumOverBlock<Policy>(weighted, OfBlock().sums);
    } else {
      sum = SumOverCluster<Policy>(sum, kToldTypical);
      weighted = SumOverCluster<Policy>(weighted, kToldWeighted);
    }
    row.mean_ = mean_ = static_cast<float>(static_cast<double>(weighted) /
                                           static_cast<double>(sum));
    typical_cut_ = Find(
        /*by_mass=*/true, Share(typical_p, sum), DistanceRange(1.0f, kAll),
        /*exact=*/false, 32,
        [&](const auto& visit) {
          row.ForEach([&](uint32_t distance, int) {
            visit(row.TypicalRankOf(distance), row.WeightOf(distance));
          });
        },
        [&](uint32_t, int, Mass sum) { kept_ = sum; });
    is_typical_ = true;
  }
};

}  // namespace espalier::cuda_sample
