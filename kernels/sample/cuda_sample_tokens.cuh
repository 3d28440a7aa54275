// A row as a draw sees it (cuda_sample.cu): tokens by their distance from the
// best, the masses of tiles, and what is left of it so far.
//
// Few tokens are ever read again. Quarters whose maximum is beyond the cut are
// passed over; and where no more is left than a block can keep, that is listed
// once and gone through instead of the row.
//
// All threads of a block, wherever nothing else is said.
#pragma once

#include "kernels/sample/cuda_sample_block.cuh"

namespace espalier::cuda_sample {

template <typename T, typename Policy>
class RowTokens {
 public:
  __device__ RowTokens(const Params& p, const CudaDraw& draw)
      : vocab_size_(p.in.vocab_size),
        num_tiles_(p.num_tiles),
        logits_(static_cast<const T*>(p.in.logits) +
                    size_t(draw.row) * p.in.vocab_size,
                p.in.vocab_size),
        edits_(p.in, draw.row),
        maxima_(reinterpret_cast<const float*>(p.maxima +
                                               size_t(draw.row) * p.num_tiles)),
        sums_(p.sums + size_t(draw.row) * p.num_tiles),
        raw_(p.raw + size_t(draw.row) * p.num_tiles),
        first_edits_(p.first_edits + size_t(draw.row) * p.num_tiles) {}

  // Of a raw logit, after SumRaw and a barrier.
  __device__ static float LogProb(float logit) {
    return RawRow{OfBlock().raw_max, OfBlock().log_sum}.LogProb(logit);
  }

 protected:
  __device__ uint32_t DistanceOf(float logit) const {
    if (!(logit > MinusInf())) return kNever;
    return logit == max_ ? 0 : __float_as_uint(__fsub_rn(max_, logit));
  }
  // Minus the exponent of a weight, to base 2.
  __device__ float ExponentOf(uint32_t distance) const {
    return __fmul_rn(__uint_as_float(distance), scale_);
  }
  __device__ Mass WeightOf(uint32_t distance) const {
    return __float2ull_rz(FastExp2(-ExponentOf(distance)) * kUnit);
  }
  __device__ uint32_t TypicalRankOf(uint32_t distance) const {
    return __float_as_uint(fabsf(__fsub_rn(ExponentOf(distance), mean_)));
  }
  __device__ bool Keeps(uint32_t distance) const {
    return distance <= cut_ &&
           (!is_typical_ || TypicalRankOf(distance) <= typical_cut_);
  }
  __device__ void Lower(uint32_t cut) { cut_ = min(cut_, cut); }

  // The best edited logit.
  __device__ float ReadMaxima(bool& nan) {
    float max = MinusInf();
    for (int t = threadIdx.x; t < num_tiles_; t += Policy::kThreads) {
      max = fmaxf(max, MaxOfTile(t));
      const float sum = raw_[t].sum;
      nan |= sum != sum;
    }
    max = cuda_select::MaxOverWarp(max);
    if (Lane() == 0) OfBlock().maxima[Warp()] = max;
    nan = __syncthreads_or(nan);
#pragma unroll
    for (int w = 0; w < kWarpsOf<Policy>; ++w) {
      max = fmaxf(max, OfBlock().maxima[w]);
    }
    return max;
  }

  // The last warp, which has the least to do besides: the raw row's log_sum, in
  // the order of selection (SumTiles), hence to the bit.
  __device__ void SumRaw() {
    if (Warp() != kWarpsOf<Policy> - 1) return;
    const RawRow raw = SumRawTiles(raw_, num_tiles_);
    if (Lane() != 0) return;
    OfBlock().raw_max = raw.max;
    OfBlock().log_sum = raw.log_sum;
  }

  __device__ float MaxOfTile(int tile) const {
    return cuda_select::MaxOf(reinterpret_cast<const float4*>(maxima_)[tile]);
  }
  __device__ Mass MassOf(float max, float sum) const {
    const uint32_t distance = DistanceOf(max);
    if (distance == kNever) return 0;
    const float weight = FastExp2(-ExponentOf(distance));
    return __float2ull_rz(__fmul_rn(sum, weight) * kUnit);
  }
  // A tile's weights in sum: within rounding of what its tokens have.
  __device__ Mass MassOfTile(int tile) const {
    const float4 maxima = reinterpret_cast<const float4*>(maxima_)[tile];
    const float4 sums = sums_[tile];
    return MassOf(maxima.x, sums.x) + MassOf(maxima.y, sums.y) +
           MassOf(maxima.z, sums.z) + MassOf(maxima.w, sums.w);
  }
  __device__ Mass MassOfTiles() {
    Mass sum = 0;
    for (int t = threadIdx.x; t < num_tiles_; t += Policy::kThreads) {
      sum += MassOfTile(t);
    }
    return SumOverBlock<Policy>(sum, OfBlock().sums);
  }

  // Calls visit(distance, token) for every token of tiles [first, end) that is
  // not further than `cut`, and end_quarter(quarter) for every warp and quarter
  // after that. Barriers before and after. Blocks of a cluster share them out.
  template <typename Visit, typename EndQuarter>
  __device__ __forceinline__ void ForEachInRow(uint32_t cut, int first, int end,
                                               const Visit& visit,
                                               const EndQuarter& end_quarter) {
#pragma unroll 1
    for (int base = first * kQuarters + BlockRank<Policy>();
         base < end * kQuarters;
         base += Policy::kThreads * NumBlocks<Policy>()) {
      __syncthreads();
      if (threadIdx.x == 0) OfBlock().num_found = 0;
      __syncthreads();
      const int own =
          base + static_cast<int>(threadIdx.x) * NumBlocks<Policy>();
      if (own < end * kQuarters && DistanceOf(maxima_[own]) <= cut) {
        OfBlock().found[atomicAdd(&OfBlock().num_found, 1)] = own;
      }
      __syncthreads();
      VisitFound<kQuartersAtOnce>(OfBlock().num_found, cut, visit, end_quarter);
    }
    __syncthreads();
  }

  // The quarters that are found, each by a warp.
  template <int kAtOnce, typename Visit, typename EndQuarter>
  __device__ __forceinline__ void VisitFound(int num_found, uint32_t cut,
                                             const Visit& visit,
                                             const EndQuarter& end_quarter) {
#pragma unroll 1
    for (int i = Warp(); i < num_found; i += kWarpsOf<Policy> * kAtOnce) {
      // The last one stands in, so that no load waits for a decision.
      LaneLogits<T> loaded[kAtOnce];
#pragma unroll
      for (int a = 0; a < kAtOnce; ++a) {
        loaded[a] = LaneLogits<T>(
            logits_,
            OfBlock().found[min(i + a * kWarpsOf<Policy>, num_found - 1)]);
      }
#pragma unroll
      for (int a = 0; a < kAtOnce; ++a) {
        if (i + a * kWarpsOf<Policy> >= num_found) break;
        const int quarter = OfBlock().found[i + a * kWarpsOf<Policy>];
        VisitQuarter(loaded[a], quarter, cut, visit);
        end_quarter(quarter);
      }
    }
  }
  template <typename Visit>
  __device__ __forceinline__ void ForEachInRow(uint32_t cut, int first, int end,
                                               const Visit& visit) {
    ForEachInRow(cut, first, end, visit, [](int) {});
  }

  template <typename Visit>
  __device__ __forceinline__ void VisitQuarter(const LaneLogits<T>& loaded,
                                               int quarter, uint32_t cut,
                                               const Visit& visit) {
    constexpr int kPerLane = cuda_select::kPerLane;
    float x[kPerLane];
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) x[j] = loaded.value(logits_, j);
    if (edits_.any()) {
      const int tile = quarter / kQuarters;
      EditWindow window(edits_, first_edits_[tile]);
      window.Apply((tile + 1) * kTileSize,
                   [&](int j) { return loaded.token(j); }, x);
    }
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const uint32_t distance = DistanceOf(x[j]);
      if (distance <= cut) visit(distance, loaded.token(j));
    }
  }

  // Calls visit(distance, token) for every token that is not further than the
  // cut. Functions out of line call it on a copy of the row: what no other
  // function sees the address of stays in registers from token to token.
  template <typename Visit>
  __device__ __forceinline__ void ForEach(const Visit& visit) {
    if (!is_listed_) return ForEachInRow(cut_, 0, num_tiles_, visit);
    for (int i = threadIdx.x; i < OfBlock().num_listed; i += Policy::kThreads) {
      const Element element = OfBlock().list[i];
      if (element.distance <= cut_) visit(element.distance, element.token);
    }
  }

  // Lists what tiles [first, end) have within the cut; false if that is too
  // much.
  __device__ __noinline__ bool List(int first, int end) {
    __syncthreads();
    if (threadIdx.x == 0) OfBlock().num_listed = 0;
    RowTokens row = *this;
    row.ForEachInRow(cut_, first, end, [&](uint32_t distance, int token) {
      row.Append(distance, token);
    });
    return MergeLists<Policy>();
  }
  __device__ void Append(uint32_t distance, int token) {
    const int i = atomicAdd(&OfBlock().num_listed, 1);
    if (i < kListSize) {
      OfBlock().list[i] = {distance, token, WeightOf(distance)};
    }
  }

  // The same of the whole row where few quarters reach the cut, and nothing has
  // been listed yet.
  __device__ bool ListFew() {
    for (int q = threadIdx.x; q < num_tiles_ * kQuarters;
         q += Policy::kThreads) {
      if (DistanceOf(maxima_[q]) > cut_) continue;
      const int i = atomicAdd(&OfBlock().num_found, 1);
      if (i < kMaxThreads) OfBlock().found[i] = q;
    }
    __syncthreads();
    const int num_found = OfBlock().num_found;
    if (num_found > kMaxThreads) return false;
    VisitFound<kFewAtOnce>(
        num_found, cut_,
        [&](uint32_t distance, int token) { Append(distance, token); },
        [](int) {});
    __syncthreads();
    return is_listed_ = OfBlock().num_listed <= kListSize;
  }

  // Usually one warp finds one quarter.
  __device__ TokenId Likeliest() {
#pragma unroll 1
    for (int base = Warp() * kWarpSize; base < num_tiles_ * kQuarters;
         base += Policy::kThreads) {
      const int own = base + Lane();
      const bool has =
          own < num_tiles_ * kQuarters && DistanceOf(maxima_[own]) == 0;
#pragma unroll 1
      for (unsigned left = __ballot_sync(kAllLanes, has); left != 0;
           left &= left - 1) {
        const int quarter = base + __ffs(left) - 1;
        VisitQuarter(
            LaneLogits<T>(logits_, quarter), quarter, 0,
            [&](uint32_t, int token) { atomicMin(&OfBlock().token, token); });
      }
    }
    SumRaw();
    __syncthreads();
    return OfBlock().token;
  }

  // The raw logit of a token whose edited one is known, if it is.
  __device__ float RawLogit(TokenId token, float edited) const {
    return edits_.any() ? logits_.Logit(token) : edited;
  }

  int vocab_size_;
  int num_tiles_;
  RowLogits<T> logits_;
  EditList edits_;
  const float* maxima_;
  const float4* sums_;
  const RawTile* raw_;
  const int* first_edits_;

  float scale_ = 1;
  float max_ = 0;  // of edited logits
  // What is left so far: distances up to `cut_` and, if is_typical_, typical
  // ranks up to `typical_cut_`.
  uint32_t cut_ = kAll;
  bool is_typical_ = false;
  uint32_t typical_cut_ = kAll;
  float mean_ = 0;  // of exponents, weighted
  Mass kept_ = 0;   // what that weighs; 0 if no filter came to know
  // Whether the list has all within the cut.
  bool is_listed_ = false;
};

}  // namespace espalier::cuda_sample
