// The draw of one token by a block or a cluster (cuda_sample.cu), by
// inverse-CDF sampling: it draws a target below the sum of the weights left;
// the token is the one at which the sum in the order of tokens exceeds the
// target. There is an implementation for each number of tokens left: few tokens
// that are compared with each other, a list, a row whose tiles give the place,
// and a row that is read again.
#pragma once

#include "kernels/sample/cuda_sample_filter.cuh"
#include "kernels/sample/random.h"
#include "kernels/sample/sample_filters.h"

namespace espalier::cuda_sample {

struct Drawn {
  TokenId token = kNotLeader;
  float logit = 0;  // raw
};

// The inputs of a draw, read by all threads before the row is complete.
struct DrawTask {
  CudaDraw draw;
  bool exists;
  bool alive = false;
  float cum = -__builtin_inff();
  RowOptions options;
  double uniform = 0;

  // For callers that write the result themselves: only options and uniform are
  // set.
  __device__ DrawTask(const RowOptions& of, double number)
      : exists(true), alive(true), options(of), uniform(number) {}
  __device__ DrawTask(const Params& p, int index)
      : exists(index < *p.in.num_draws) {
    if (!exists) return;
    draw = p.in.draws[index];
    cum = p.in.cum_log_probs[draw.row];
    const int row_params = p.in.row_params[draw.row];
    alive = row_params >= 0 && cum > MinusInf();
    if (!alive) return;
    options = RowOptions(p.in.params[row_params]);
    uniform = Uniform({.seed = options.params.seed,
                       .sample = draw.sample,
                       .position = draw.position,
                       .purpose = draw.purpose},
                      0);
  }

  // Called by one thread, which fetched the draw, after SumRaw and a barrier.
  __device__ void Answer(const Params& p, const Drawn& drawn) const {
    Candidate candidate = {draw.beam, drawn.token, MinusInf()};
    const RawRow raw = {SharedStorage().raw_max, SharedStorage().log_sum};
    if (raw.log_sum != raw.log_sum) {
      candidate.token = kNotANumber;
    } else if (drawn.token >= 0) {
      candidate.cum_log_prob = __fadd_rn(cum, raw.LogProb(drawn.logit));
    }
    p.candidates[draw.candidate] = candidate;
  }
  template <typename Policy>
  __device__ void AnswerDead(const Params& p) const {
    if (BlockRank<Policy>() == 0 && threadIdx.x == 0) {
      p.candidates[draw.candidate] = {draw.beam, kNoToken, MinusInf()};
    }
  }
};

template <typename T, typename Policy>
class Sampler : public RowFilter<T, Policy> {
 public:
  using Base = RowFilter<T, Policy>;
  using Base::Base;

  // Returns the sampled token to one thread of one block; kNotLeader to all
  // others. Skips NaN, which SumRaw reports. A row held in registers need not
  // be read again. If few tokens are kept (KeepsFew), its raw sums are complete
  // only after another barrier of the cluster.
  template <typename Held = NoRegisterTile>
  __device__ Drawn Draw(const DrawTask& task, const Held& held = {}) {
    const SamplingParams& params = task.options.params;
    const bool few = KeepsFew(params, vocab_size_);
    scale_ = task.options.scale;
    max_ = ReadMaxima();
    if (!(Held::kHolds && few)) SumRaw();
    if (!(max_ > MinusInf())) {
      if (Held::kHolds && few) {
        SyncCluster();
        SumRaw();
      }
      __syncthreads();
      return LeaderResult(kNoToken);
    }
    if (params.temperature == 0.0f) {
      return BlockRank<Policy>() != 0 ? Drawn{} : LeaderResult(ArgMax(), max_);
    }
    if (KeepsAll(params, vocab_size_)) {
      if (num_tiles_ <= Policy::kThreads) return DrawFromFewTiles(task.uniform);
      Sampler copy = *this;
      return LeaderResult(copy.DrawFromAll(task.uniform));
    }
    if (few) {
      const bool listed = BoundFew(task.options, held);
      if (Held::kHolds) SumRaw();
      if (listed) {
        if (BlockRank<Policy>() != 0) return {};
        const int size = SharedStorage().num_listed;
        const int top_k = HasTopK(params) ? params.top_k : kShortList;
        if (size <= kShortList && HasAtMostTopP(params, vocab_size_)) {
          return size <= kShortList / 2
                     ? DrawFromShortList<kShortList / 2>(top_k, params.top_p,
                                                         task.uniform)
                     : DrawFromShortList<kShortList>(top_k, params.top_p,
                                                     task.uniform);
        }
      }
    }
    // Functions that are not inlined take a copy, so that this object stays in
    // registers.
    Sampler copy = *this;
    return LeaderResult(copy.DrawFiltered(params, task.uniform));
  }

  // Draws from a row without filters (KeepsAll), or greedily.
  __device__ Drawn DrawUnfiltered(const DrawTask& task) {
    scale_ = task.options.scale;
    max_ = ReadMaxima();
    SumRaw();
    if (!(max_ > MinusInf())) {
      __syncthreads();
      return LeaderResult(kNoToken);
    }
    if (task.options.params.temperature == 0.0f) {
      return LeaderResult(ArgMax(), max_);
    }
    if (num_tiles_ <= Policy::kThreads) return DrawFromFewTiles(task.uniform);
    return LeaderResult(DrawFromAll(task.uniform));
  }

  // Returns the tokens that the filters keep, to all threads.
  __device__ RowCut Cut(const RowOptions& options) {
    const SamplingParams& params = options.params;
    RowCut cut;
    cut.scale = scale_ = options.scale;
    cut.max = max_ = ReadMaxima();
    SumRaw();
    __syncthreads();
    if (SharedStorage().log_sum != SharedStorage().log_sum) {
      cut.token = kNotANumber;
    } else if (!(max_ > MinusInf())) {
      cut.token = kNoToken;
    } else if (params.temperature == 0.0f) {
      cut.token = ArgMax();
      cut.is_greedy = true;
    } else {
      if (KeepsFew(params, vocab_size_)) BoundFew(options);
      Filter(params);
      const double total = static_cast<double>(Kept()) / kUnit;
      cut.log_total = static_cast<float>(log(total));
      cut.cut = cut_;
      cut.is_typical = is_typical_;
      cut.typical_cut = typical_cut_;
      cut.mean = mean_;
    }
    return cut;
  }

 protected:
  // Samples from all tokens of a row but `without`, if every tile has a thread.
  // mass_of(tile) is the tile's mass without that token. Returns `without` if
  // no mass is left.
  template <typename MassOf>
  __device__ __forceinline__ Drawn DrawByTiles(const MassOf& mass_of,
                                               double uniform,
                                               TokenId without) {
    const int own_tile = threadIdx.x;
    const Mass own = own_tile < num_tiles_ ? mass_of(own_tile) : 0;
    Mass total;
    const Mass up_to =
        BlockInclusiveScan<Policy>(own, SharedStorage().sums, total);
    if (total == 0) return LeaderResult(without);
    const Mass target = Target(uniform, total);
    if (up_to - own <= target && target < up_to) {
      SharedStorage().tile = own_tile;
      SharedStorage().before_tile = up_to - own;
      SharedStorage().of_tile = own;
    }
    __syncthreads();
    return DrawInTile(SharedStorage().tile,
                      target - SharedStorage().before_tile,
                      SharedStorage().of_tile, without);
  }

  // Computes the weights of this thread's tokens of a tile, 0 for `without`,
  // and their edited logits `x`. Returns the sum of the weights.
  template <int kEach>
  __device__ Mass WeightsInTile(int tile, TokenId without, float (&x)[kEach],
                                Mass (&weights)[kEach]) const {
    const int first = FirstInTile<kEach>(tile);
    const auto token_of = [first](int i) { return first + i; };
    logits_.Logits(token_of, x);
    if (edits_.any()) {
      EditWindow window(edits_, first_edits_[tile]);
      window.Apply((tile + 1) * kTileSize, token_of, x);
    }
    Mass sum = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const uint32_t distance = DistanceOf(x[i]);
      const bool weighs = distance != kNever && first + i != without;
      weights[i] = weighs ? WeightOf(distance) : 0;
      sum += weights[i];
    }
    return sum;
  }

 private:
  using Base::ArgMax;
  using Base::BoundFew;
  using Base::cut_;
  using Base::DistanceOf;
  using Base::edits_;
  using Base::Filter;
  using Base::first_edits_;
  using Base::ForEach;
  using Base::has_tiles_;
  using Base::HasTopK;
  using Base::is_listed_;
  using Base::is_typical_;
  using Base::Keeps;
  using Base::Kept;
  using Base::List;
  using Base::logits_;
  using Base::MassOfTile;
  using Base::MassOfTiles;
  using Base::max_;
  using Base::mean_;
  using Base::num_tiles_;
  using Base::RawLogit;
  using Base::ReadMaxima;
  using Base::scale_;
  using Base::SumKept;
  using Base::SumRaw;
  using Base::SumTilesOf;
  using Base::TileShift;
  using Base::typical_cut_;
  using Base::vocab_size_;
  using Base::WeightOf;

  __device__ static bool IsFirst() {
    return BlockRank<Policy>() == 0 && threadIdx.x == 0;
  }
  __device__ Drawn LeaderResult(TokenId token) const {
    if (!IsFirst()) return {};
    return {token, token < 0 ? 0 : logits_.Logit(token)};
  }
  __device__ Drawn LeaderResult(TokenId token, float edited) const {
    if (!IsFirst()) return {};
    return {token, RawLogit(token, edited)};
  }

  __device__ __noinline__ TokenId DrawFiltered(SamplingParams params,
                                               double uniform) {
    if (!is_listed_ && NumBlocks<Policy>() > 1)
      SyncCluster();  // all have begun
    Filter(params);
    const Mass target = Target(uniform, Kept());
    return is_listed_ ? DrawFromList(target) : DrawFromRow(target);
  }
  // Returns the token at which the sum of listed and kept tokens exceeds
  // `target`.
  __device__ __noinline__ TokenId DrawFromList(Mass target) {
    const auto last = static_cast<uint32_t>(vocab_size_ - 1);
    RadixSelect search({.low = 0, .high = last, .open = false}, target + 1,
                       /*by_mass=*/true);
    Sampler row = *this;
    while (!search.is_exact()) {
      search.BeginRound<Policy>();
      row.ForEach([&](uint32_t distance, int token) {
        if (!row.Keeps(distance)) return;
        search.Add(token, [&] { return row.WeightOf(distance); });
      });
      search.EndRound<Policy>(/*shared_out=*/false);
    }
    return static_cast<TokenId>(search.high());
  }

  // Samples from the listed tokens of one tile.
  __device__ TokenId DrawFromTile(int tile, Mass target, Mass of_tile) {
    is_listed_ = List(tile, tile + 1);
    const Mass total = SumKept();
    if (total == 0) return ArgMax();
    return DrawFromList(Rescaled(target, of_tile, total));
  }

  // Samples from up to kSize listed tokens, each compared with all others by
  // the lanes assigned to it.
  template <int kSize>
  __device__ __forceinline__ Drawn DrawFromShortList(int top_k, float top_p,
                                                     double uniform) {
    constexpr int kLanes = Policy::kThreads / kSize;
    const int size = SharedStorage().num_listed;
    const int index = threadIdx.x / kLanes;
    const int part = threadIdx.x % kLanes;
    const bool exists = index < size;
    const Element own =
        exists ? SharedStorage().list[index] : Element{kNever, 0, 0};
    // Loaded before it is known to be needed.
    float logit = 0;
    if (exists && part == 0) logit = logits_.Logit(own.token);
    int num_above = 0;
    Mass above = 0;
#pragma unroll 1
    for (int i = part; i < size; i += kLanes) {
      const Element other = SharedStorage().list[i];
      const bool is_above = other.distance < own.distance;
      num_above += is_above ? 1 : 0;
      above += is_above ? other.weight : 0;
    }
    num_above = LaneGroupSum<kLanes>(num_above);
    above = LaneGroupSum<kLanes>(above);
    bool kept = exists && num_above < top_k;
    if (top_p < 1.0f) {
      const Mass total = BlockSum<Policy>(kept && part == 0 ? own.weight : 0,
                                          SharedStorage().sums);
      kept = kept && above < Share(top_p, total);
    }
    const uint32_t furthest =
        __reduce_max_sync(kAllLanes, kept ? own.distance : 0);
    if (Lane() == 0) SharedStorage().furthest[Warp()] = furthest;
    const Mass total = BlockSum<Policy>(kept && part == 0 ? own.weight : 0,
                                        SharedStorage().more_sums);
    const uint32_t cut = __reduce_max_sync(
        kAllLanes, SharedStorage().furthest[Lane() % kWarpsOf<Policy>]);
    const Mass target = Target(uniform, total);
    Mass before = 0;
#pragma unroll 1
    for (int i = part; i < size; i += kLanes) {
      const Element other = SharedStorage().list[i];
      const bool is_before = other.token < own.token && other.distance <= cut;
      before += is_before ? other.weight : 0;
    }
    before = LaneGroupSum<kLanes>(before);
    const bool mine =
        kept && part == 0 && before <= target && target < before + own.weight;
    return mine ? Drawn{own.token, logit} : Drawn{};
  }

  // Samples from all tokens of a row, if every tile has a thread.
  __device__ __forceinline__ Drawn DrawFromFewTiles(double uniform) {
    if (BlockRank<Policy>() != 0) return {};
    return DrawByTiles([this](int tile) { return MassOfTile(tile); }, uniform,
                       kNoToken);
  }

  template <int kEach>
  __device__ static int FirstInTile(int tile) {
    return tile * kTileSize + static_cast<int>(threadIdx.x) * kEach;
  }

  __device__ Drawn DrawInTile(int tile, Mass target, Mass of_tile,
                              TokenId without) {
    constexpr int kEach = kTileSize / Policy::kThreads;
    const int first = FirstInTile<kEach>(tile);
    float x[kEach];
    Mass weights[kEach];
    const Mass sum = WeightsInTile(tile, without, x, weights);
    Mass total;
    Mass before =
        BlockInclusiveScan<Policy>(sum, SharedStorage().more_sums, total) - sum;
    // Each token weighs less than a unit, and all together less than rounding.
    if (total == 0) return LeaderResult(ArgMax(), max_);
    target = Rescaled(target, of_tile, total);
    Drawn drawn;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (before <= target && target < before + weights[i]) {
        drawn = {first + i, RawLogit(first + i, x[i])};
      }
      before += weights[i];
    }
    return drawn;
  }

  // Rescales a target: a tile's mass as read differs by rounding from the sum
  // over its tokens.
  __device__ static Mass Rescaled(Mass target, Mass of_tile, Mass total) {
    if (total == of_tile) return target;
    return min(total - 1, static_cast<Mass>(static_cast<double>(target) *
                                            (static_cast<double>(total) /
                                             static_cast<double>(of_tile))));
  }

  // Finds the tile at which mass_of(tile) adds up to more than `target`.
  template <typename MassOf>
  __device__ void FindTile(Mass target, const MassOf& mass_of) {
    Mass before = 0;
    for (int base = 0; base < num_tiles_; base += Policy::kThreads) {
      const int tile = base + static_cast<int>(threadIdx.x);
      const Mass own = tile < num_tiles_ ? mass_of(tile) : 0;
      Mass sum = WarpInclusiveSum(own);
      __syncthreads();
      if (Lane() == kWarpSize - 1) SharedStorage().sums[Warp()] = sum;
      __syncthreads();
      sum += before;
#pragma unroll
      for (int w = 0; w < kWarpsOf<Policy>; ++w) {
        if (w < Warp()) sum += SharedStorage().sums[w];
        before += SharedStorage().sums[w];
      }
      if (sum - own <= target && target < sum) {
        SharedStorage().tile = tile;
        SharedStorage().before_tile = sum - own;
        SharedStorage().of_tile = own;
      }
    }
    __syncthreads();
  }

  __device__ __noinline__ TokenId DrawFromAll(double uniform) {
    const Mass target = Target(uniform, MassOfTiles());
    FindTile(target, [&](int tile) { return MassOfTile(tile); });
    return DrawFromTile(SharedStorage().tile,
                        target - SharedStorage().before_tile,
                        SharedStorage().of_tile);
  }

  // Samples from more tokens than a list holds: first finds the tile, or the
  // tiles that share a bin, and then searches them.
  __device__ __noinline__ TokenId DrawFromRow(Mass target) {
    int first = 0;
    int end = num_tiles_;
    int shift = TileShift();
    if (!has_tiles_) SumTilesOf(first, end, shift);
    for (;;) {
      if (threadIdx.x == 0) SharedStorage().bin = -1;
      __syncthreads();
      FindDigit<BinsOf::kTiles>(target + 1);
      target -= SharedStorage().before;
      first += SharedStorage().bin << shift;
      end = min(end, first + (1 << shift));
      if (shift == 0) break;
      shift = max(0, shift - 9);
      SumTilesOf(first, end, shift);
    }
    is_listed_ = List(first, first + 1);
    return DrawFromList(target);
  }
};

}  // namespace espalier::cuda_sample
