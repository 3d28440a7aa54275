// The row of a draw (cuda_sample.cu): tokens by their distance from the best,
// the masses of tiles, and the tokens left so far.
//
// Few tokens are read again. Quarters whose maximum is beyond the cut are
// skipped. If the tokens left fit in a list, they are listed once, and the list
// is read instead of the row.
//
// Called by all threads of a block unless a comment says otherwise.
#pragma once

#include "kernels/sample/cuda_sample_bins.cuh"
#include "kernels/sample/cuda_sample_edits.cuh"

namespace espalier::cuda_sample {

using cuda_logits::kPerLane;

// Statistics of a row's tiles, in any memory.
struct TileTable {
  const float4* maxima;
  const float4* sums;
  const RawTile* raw;
  const int* first_edits;
};

__device__ inline TileTable TilesOf(const Params& p, int row) {
  const size_t first = size_t(row) * p.num_tiles;
  return {p.maxima + first, p.sums + first, p.raw + first,
          p.first_edits + first};
}

// A lane's share of a quarter.
template <typename T>
struct LaneTokens {
  int quarter;
  int first;               // token
  float logits[kPerLane];  // edited

  __device__ int token(int j) const {
    return first + j % cuda_logits::kPerPiece +
           j / cuda_logits::kPerPiece * kWarpLoadSize;
  }
};

// A row that is read again when its logits are needed again.
struct NoRegisterTile {
  static constexpr bool kHolds = false;
};

template <typename T, typename Policy>
class RowTokens {
 public:
  using Logit = LogitOf<T>;

  __device__ RowTokens(const Params& p, const CudaDraw& draw,
                       const TileTable& tiles)
      : vocab_size_(p.in.vocab_size),
        num_tiles_(p.num_tiles),
        logits_(p.LogitsOf<Logit>(draw.row), p.in.vocab_size),
        edits_(p.in, draw.row),
        maxima_(&tiles.maxima->x),
        sums_(tiles.sums),
        raw_(tiles.raw),
        first_edits_(tiles.first_edits) {}

 protected:
  __device__ uint32_t DistanceOf(float logit) const {
    if (!(logit > MinusInf())) return kNever;
    return logit == max_ ? 0 : __float_as_uint(__fsub_rn(max_, logit));
  }
  // Returns the negated exponent of a weight, to base 2.
  __device__ float ExponentOf(uint32_t distance) const {
    return __fmul_rn(__uint_as_float(distance), scale_);
  }
  __device__ Mass WeightOf(uint32_t distance) const {
    return __float2ull_rz(Exp2(-ExponentOf(distance)) * kUnit);
  }
  __device__ uint32_t TypicalRankOf(uint32_t distance) const {
    return __float_as_uint(fabsf(__fsub_rn(ExponentOf(distance), mean_)));
  }
  __device__ bool Keeps(uint32_t distance) const {
    return distance <= cut_ &&
           (!is_typical_ || TypicalRankOf(distance) <= typical_cut_);
  }
  __device__ void TightenThreshold(uint32_t cut) { cut_ = min(cut_, cut); }

  // Returns the best edited logit. Each warp finds it separately, which is
  // faster than waiting for others.
  __device__ float ReadMaxima() const {
    constexpr int kAtOnce = 4;
    float max = MinusInf();
#pragma unroll 1
    for (int first = Lane(); first < num_tiles_; first += kAtOnce * kWarpSize) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        // Past the end the last tile is loaded again, so that no load depends
        // on a branch.
        const int tile = min(first + i * kWarpSize, num_tiles_ - 1);
        max = fmaxf(max, cuda_logits::MaxOf(
                             reinterpret_cast<const float4*>(maxima_)[tile]));
      }
    }
    return WarpMax(max);
  }

  // The last warp, which has the least other work, computes the raw row's
  // log_sum, in the order of selection (SumTiles), hence the same bits. NaN if
  // a logit is NaN.
  __device__ void SumRaw() const {
    if (Warp() != kWarpsOf<Policy> - 1) return;
    const RawRow raw = SumRawTiles(raw_, num_tiles_);
    if (Lane() != 0) return;
    SharedStorage().raw_max = raw.max;
    SharedStorage().log_sum = raw.log_sum;
  }

  __device__ Mass MassOf(float max, float sum) const {
    const uint32_t distance = DistanceOf(max);
    if (distance == kNever) return 0;
    const float weight = Exp2(-ExponentOf(distance));
    return __float2ull_rz(__fmul_rn(sum, weight) * kUnit);
  }
  // Returns a tile's mass, within rounding of the sum over its tokens.
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
    return SumOverBlock<Policy>(sum, SharedStorage().sums);
  }

  // Calls visit(tokens) for every quarter of tiles [first, end) that reaches
  // the cut, one warp per quarter. Has barriers before and after. Blocks of a
  // cluster divide the quarters.
  template <typename Visit>
  __device__ __forceinline__ void ForEachQuarter(int first, int end,
                                                 const Visit& visit) {
#pragma unroll 1
    for (int base = first * kQuarters + BlockRank<Policy>();
         base < end * kQuarters;
         base += Policy::kThreads * NumBlocks<Policy>()) {
      __syncthreads();
      if (threadIdx.x == 0) SharedStorage().num_found = 0;
      __syncthreads();
      const int own =
          base + static_cast<int>(threadIdx.x) * NumBlocks<Policy>();
      if (own < end * kQuarters && DistanceOf(maxima_[own]) <= cut_) {
        SharedStorage().found[atomicAdd(&SharedStorage().num_found, 1)] = own;
      }
      __syncthreads();
      VisitFound<kQuartersAtOnce>(SharedStorage().num_found, visit);
    }
    __syncthreads();
  }

  // Visits the found quarters, one warp per quarter.
  template <int kAtOnce, typename Visit>
  __device__ __forceinline__ void VisitFound(int num_found,
                                             const Visit& visit) {
#pragma unroll 1
    for (int i = Warp(); i < num_found; i += kWarpsOf<Policy> * kAtOnce) {
      // Past the end the last quarter is loaded again, so that no load depends
      // on a branch.
      LaneLogits<Logit> loaded[kAtOnce];
#pragma unroll
      for (int a = 0; a < kAtOnce; ++a) {
        loaded[a] = LaneLogits<Logit>(
            logits_, SharedStorage()
                         .found[min(i + a * kWarpsOf<Policy>, num_found - 1)]);
      }
#pragma unroll
      for (int a = 0; a < kAtOnce; ++a) {
        if (i + a * kWarpsOf<Policy> >= num_found) break;
        visit(TokensOf(loaded[a],
                       SharedStorage().found[i + a * kWarpsOf<Policy>]));
      }
    }
  }

  __device__ __forceinline__ LaneTokens<T> TokensOf(
      const LaneLogits<Logit>& loaded, int quarter) const {
    LaneTokens<T> tokens = {quarter, loaded.first};
    float(&x)[kPerLane] = tokens.logits;
    if ((quarter / kQuarters + 1) * kTileSize <= vocab_size_) {
#pragma unroll
      for (int j = 0; j < kPerLane; ++j) {
        x[j] = RowLogits<Logit>::ToFloat(loaded.raw[j]);
      }
    } else {
#pragma unroll
      for (int j = 0; j < kPerLane; ++j) x[j] = loaded.value(logits_, j);
    }
    if (edits_.any()) {
      const int tile = quarter / kQuarters;
      EditWindow window(edits_, first_edits_[tile]);
      window.Apply((tile + 1) * kTileSize,
                   [&](int j) { return tokens.token(j); }, x);
    }
    return tokens;
  }

  // Returns a lower bound, above -inf, of the logits within the cut, with a
  // margin for rounding. Most tokens need no distance then.
  __device__ float Floor() const {
    constexpr float kLowest = -3.40282347e38f;
    const float cut = __uint_as_float(cut_);
    const float floor = max_ - cut - 0x1p-20f * (fabsf(max_) + cut);
    return fabsf(floor) <= -kLowest ? floor : kLowest;  // NaN: the lowest
  }

  // Calls visit(distance, token) for tokens of a quarter within the cut.
  template <typename Visit>
  __device__ __forceinline__ void ForEachOf(const LaneTokens<T>& tokens,
                                            float floor,
                                            const Visit& visit) const {
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      if (!(tokens.logits[j] >= floor)) continue;
      const uint32_t distance = DistanceOf(tokens.logits[j]);
      if (distance <= cut_) visit(distance, tokens.token(j));
    }
  }

  // Calls visit(distance, token) for every token within the cut. Functions that
  // are not inlined call it on a copy of the row: members whose address does
  // not escape stay in registers from token to token.
  template <typename Visit>
  __device__ __forceinline__ void ForEach(const Visit& visit) {
    if (!is_listed_) {
      const float floor = Floor();
      return ForEachQuarter(0, num_tiles_, [&](const LaneTokens<T>& tokens) {
        ForEachOf(tokens, floor, visit);
      });
    }
    for (int i = threadIdx.x; i < SharedStorage().num_listed;
         i += Policy::kThreads) {
      const Element element = SharedStorage().list[i];
      if (element.distance <= cut_) visit(element.distance, element.token);
    }
  }

  // Calls visit(distance) for every token within the cut, if none is listed. If
  // only one token of 32 is within it, a warp still executes all steps of a
  // visit for that token. For expensive visits the distances of a quarter are
  // therefore first compacted, in the memory of the list, and then visited by
  // all lanes.
  template <typename Visit>
  __device__ __forceinline__ void ForEachDistance(const Visit& visit) {
    static_assert(kListSize * sizeof(Element) >=
                  Policy::kThreads * kPerLane * sizeof(uint32_t));
    uint32_t* const within = reinterpret_cast<uint32_t*>(SharedStorage().list) +
                             Warp() * cuda_logits::kSubtileSize;
    const float floor = Floor();
    ForEachQuarter(0, num_tiles_, [&](const LaneTokens<T>& tokens) {
      if (Policy::kClusters || cut_ == kAll) {
        return ForEachOf(tokens, floor,
                         [&](uint32_t distance, int) { visit(distance); });
      }
      int size = 0;
#pragma unroll
      for (int j = 0; j < kPerLane; ++j) {
        const bool near = tokens.logits[j] >= floor;
        const uint32_t distance = near ? DistanceOf(tokens.logits[j]) : kNever;
        const bool is_within = distance <= cut_;
        const unsigned lanes = __ballot_sync(kAllLanes, is_within);
        if (is_within) {
          within[size + __popc(lanes & ((1u << Lane()) - 1))] = distance;
        }
        size += __popc(lanes);
      }
      __syncwarp();
      for (int i = Lane(); i < size; i += kWarpSize) visit(within[i]);
      __syncwarp();
    });
  }

  // Lists the tokens of tiles [first, end) within the cut; returns false if
  // there are too many.
  __device__ __noinline__ bool List(int first, int end) {
    __syncthreads();
    if (threadIdx.x == 0) SharedStorage().num_listed = 0;
    RowTokens row = *this;
    const float floor = row.Floor();
    row.ForEachQuarter(first, end, [&](const LaneTokens<T>& tokens) {
      row.ForEachOf(tokens, floor, [&](uint32_t distance, int token) {
        row.Append(distance, token);
      });
    });
    return MergeLists<Policy>();
  }
  __device__ void Append(uint32_t distance, int token) {
    const int i = atomicAdd(&SharedStorage().num_listed, 1);
    if (i < kListSize) {
      SharedStorage().list[i] = {distance, token, WeightOf(distance)};
    }
  }

  // Lists the tokens of the whole row within the cut if few quarters reach the
  // cut.
  // REQUIRES: no token has been listed.
  __device__ bool CompactSurvivors() {
    for (int q = threadIdx.x; q < num_tiles_ * kQuarters;
         q += Policy::kThreads) {
      if (DistanceOf(maxima_[q]) > cut_) continue;
      const int i = atomicAdd(&SharedStorage().num_found, 1);
      if (i < kMaxThreads) SharedStorage().found[i] = q;
    }
    __syncthreads();
    const int num_found = SharedStorage().num_found;
    if (num_found > kMaxThreads) return false;
    const float floor = Floor();
    VisitFound<kFewAtOnce>(num_found, [&](const LaneTokens<T>& tokens) {
      ForEachOf(tokens, floor,
                [&](uint32_t distance, int token) { Append(distance, token); });
    });
    __syncthreads();
    return is_listed_ = SharedStorage().num_listed <= kListSize;
  }

  // Lists the tokens within the cut of a row that the warps of a cluster hold
  // in registers, in the first block's memory. Afterwards that block sees what
  // the others wrote before.
  template <typename Held>
  __device__ bool ListHeld(const Held& held) {
    int& num_listed = MapSharedRank(SharedStorage().num_listed, 0);
    Element* const list = &MapSharedRank(SharedStorage().list[0], 0);
    int count = 0;
    held.ForEach([&](float x) { return DistanceOf(x) <= cut_; },
                 [&](float x, int token) {
                   const uint32_t distance = DistanceOf(x);
                   const int i = atomicAdd(&num_listed, 1);
                   if (i < kListSize) {
                     list[i] = {distance, token, WeightOf(distance)};
                   }
                   ++count;
                 });
    // Gives the number to all blocks.
    count = __reduce_add_sync(kAllLanes, count);
    if (count > 0 && Lane() < NumBlocks<Policy>()) {
      atomicAdd(&MapSharedRank(SharedStorage().num_held, Lane()), count);
    }
    __syncwarp();
    SyncCluster();
    return is_listed_ = SharedStorage().num_held <= kListSize;
  }

  // Usually only one warp finds a quarter.
  __device__ TokenId ArgMax() {
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
        const auto tokens =
            TokensOf(LaneLogits<Logit>(logits_, quarter), quarter);
#pragma unroll
        for (int j = 0; j < kPerLane; ++j) {
          if (DistanceOf(tokens.logits[j]) != 0) continue;
          atomicMin(&SharedStorage().token, tokens.token(j));
        }
      }
    }
    __syncthreads();
    return SharedStorage().token;
  }

  // Returns the raw logit of a token with a known edited one.
  __device__ float RawLogit(TokenId token, float edited) const {
    return edits_.any() ? logits_.Logit(token) : edited;
  }

  int vocab_size_;
  int num_tiles_;
  RowLogits<Logit> logits_;
  EditList<kIsMasked<T>> edits_;
  const float* maxima_;
  const float4* sums_;
  const RawTile* raw_;
  const int* first_edits_;

  float scale_ = 1;
  float max_ = 0;  // highest edited logit
  // The tokens left so far: distances up to `cut_` and, if is_typical_, typical
  // ranks up to `typical_cut_`.
  uint32_t cut_ = kAll;
  bool is_typical_ = false;
  uint32_t typical_cut_ = kAll;
  float mean_ = 0;          // weighted mean exponent
  Mass kept_ = 0;           // mass of the tokens left; 0 if not computed
  bool has_tiles_ = false;  // of_tiles is filled
  // True if the list has all tokens within the cut. With ListHeld that is the
  // list of the first block.
  bool is_listed_ = false;
};

}  // namespace espalier::cuda_sample
