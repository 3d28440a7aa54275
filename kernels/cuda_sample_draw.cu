// One block a draw: from what is known of a row's tiles to its token
// (cuda_sample.cu).
#include <algorithm>

#include "kernels/cuda_sample_row.cuh"
#include "kernels/random.h"

namespace espalier::cuda_sample {
namespace {

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
};
// More: four blocks wait for memory in turn.
struct ManyDraws {
  static constexpr int kThreads = 256;
  static constexpr int kMinBlocks = 4;
};
constexpr int kMaxThreads = FewDraws::kThreads;
constexpr int kMaxWarps = kMaxThreads / kWarpSize;
// Quarters that a warp has on their way: where few are wanted, and else.
constexpr int kFewAtOnce = 4;
constexpr int kQuartersAtOnce = 2;
// What all threads but one return.
constexpr TokenId kNotMine = -3;

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
  int count;        // elements in it
  int count_up_to;  // and before it
  int tile;         // that a draw ends in
  Mass before_tile;
  Mass of_tile;
};

// What a search goes by, from the first element to the last: lower is earlier.
// If `open`, ranks outside [low, high] share the bins at its ends in the first
// round.
struct RankRange {
  uint32_t low = 0;
  uint32_t high = kAll;
  bool open = true;
};

// Of all positive distances 32 bins for each power of two between 2^-8 and 2^6
// in the exponent of a weight.
__device__ RankRange DistanceRange(float scale, uint32_t cut) {
  const uint32_t low = __float_as_uint(0x1p-8f / scale);
  const uint32_t high = min(__float_as_uint(64.0f / scale), cut);
  return {.low = min(low, high), .high = high};
}

template <typename T, typename Policy>
class Sampler {
 public:
  __device__ Sampler(const Params& p, const CudaDraw& draw, Shared& shared)
      : shared_(shared),
        vocab_size_(p.in.vocab_size),
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

  // Before anything else, and before the row is there. The first barrier comes
  // with the maxima.
  __device__ static void Clear(Shared& shared, int vocab_size) {
    for (int i = threadIdx.x; i < kBins; i += Policy::kThreads) {
      shared.counts[i] = 0;
    }
    if (threadIdx.x != 0) return;
    shared.num_listed = shared.num_found = 0;
    shared.bin = -1;
    shared.token = vocab_size;
  }

  // The token drawn, to one thread; kNotMine to all others. `uniform` is in
  // (0, 1).
  __device__ TokenId Draw(const SamplingParams& params, double uniform) {
    scale_ = ExponentScale(params.temperature);
    bool nan = false;
    max_ = ReadMaxima(nan);
    if (nan) return ByFirst(kNotANumber);
    if (!(max_ > MinusInf())) return ByFirst(kNoToken);
    if (params.temperature == 0.0f) return ByFirst(Likeliest());
    const bool top_k = HasTopK(params);
    const bool few = top_k || params.min_p > 0.0f;
    if (!few && params.top_p == 1.0f && params.typical_p == 1.0f) {
      if (num_tiles_ <= Policy::kThreads) return DrawFromFewTiles(uniform);
      Sampler copy = *this;
      return ByFirst(copy.DrawFromAll(uniform));
    }
    if (few && BoundFew(params) && shared_.num_listed <= kShortList &&
        params.typical_p == 1.0f) {
      return DrawFromShortList(top_k ? params.top_k : kShortList, params.top_p,
                               uniform);
    }
    // What is out of line has a copy, so that this one stays in registers.
    Sampler copy = *this;
    return ByFirst(copy.DrawFiltered(params, uniform));
  }

  __device__ float LogProb(TokenId token) const {
    return RawRow{shared_.raw_max, shared_.log_sum}.LogProb(
        logits_.Logit(token));
  }

  // What the filters leave of the row, to all threads.
  __device__ RowCut Cut(const SamplingParams& params) {
    RowCut cut;
    scale_ = ExponentScale(params.temperature);
    bool nan = false;
    cut.max = max_ = ReadMaxima(nan);
    cut.scale = scale_;
    if (nan) {
      cut.token = kNotANumber;
    } else if (!(max_ > MinusInf())) {
      cut.token = kNoToken;
    } else if (params.temperature == 0.0f) {
      cut.token = Likeliest();
      cut.is_greedy = true;
    } else {
      CutFiltered(params);
      const double total = static_cast<double>(SumKept()) / kUnit;
      cut.log_total = static_cast<float>(log(total));
      cut.cut = cut_;
      cut.is_typical = is_typical_;
      cut.typical_cut = typical_cut_;
      cut.mean = mean_;
    }
    return cut;
  }

 private:
  __device__ static int Lane() { return threadIdx.x % kWarpSize; }
  __device__ static int Warp() { return threadIdx.x / kWarpSize; }
  static constexpr int kWarps = Policy::kThreads / kWarpSize;

  __device__ static TokenId ByFirst(TokenId token) {
    return threadIdx.x == 0 ? token : kNotMine;
  }

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
  __device__ __noinline__ TokenId DrawFiltered(SamplingParams params,
                                               double uniform) {
    Filter(params);
    const Mass target = Target(uniform, SumKept());
    return is_listed_ ? DrawFromList(target) : DrawFromRow(target);
  }
  __device__ void CutFiltered(const SamplingParams& params) {
    if (HasTopK(params) || params.min_p > 0.0f) BoundFew(params);
    Filter(params);
  }

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

  // A number below `total` for one in (0, 1).
  __device__ static Mass Target(double uniform, Mass total) {
    const Mass target = static_cast<Mass>(uniform * static_cast<double>(total));
    return min(target, total - 1);
  }
  // What sums that reach `share` of the total are at least.
  __device__ static Mass Share(double share, Mass total) {
    const Mass bound =
        static_cast<Mass>(ceil(share * static_cast<double>(total)));
    return max(Mass{1}, min(bound, total));
  }

  __device__ static Mass SumOverWarp(Mass sum) {
#pragma unroll
    for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, distance);
    }
    return sum;
  }

  // All threads, as below wherever nothing else is said. Barriers before and
  // after the shared sums.
  __device__ Mass SumOverBlock(Mass sum) {
    sum = SumOverWarp(sum);
    __syncthreads();
    if (Lane() == 0) shared_.sums[Warp()] = sum;
    __syncthreads();
    Mass total = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) total += shared_.sums[w];
    return total;
  }
  // The sum up to this thread's; and of all, through `of_warps`, with one
  // barrier.
  __device__ static Mass ScanOverBlock(Mass sum, Mass (&of_warps)[kMaxWarps],
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
    for (int w = 0; w < kWarps; ++w) {
      if (w < Warp()) sum += of_warps[w];
      total += of_warps[w];
    }
    return sum;
  }
  // The sum of all, in the same way.
  __device__ static Mass SumOnce(Mass sum, Mass (&of_warps)[kMaxWarps]) {
    sum = SumOverWarp(sum);
    if (Lane() == 0) of_warps[Warp()] = sum;
    __syncthreads();
    Mass total = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) total += of_warps[w];
    return total;
  }

  // The best edited logit; and, by one warp, the raw row's log_sum, in the
  // order of selection (SumTiles), hence to the bit.
  __device__ float ReadMaxima(bool& nan) {
    float max = MinusInf();
    for (int t = threadIdx.x; t < num_tiles_; t += Policy::kThreads) {
      max = fmaxf(max, MaxOfTile(t));
      const float sum = raw_[t].sum;
      nan |= sum != sum;
    }
    if (Warp() == kWarps - 1) SumRaw();
    max = cuda_select::MaxOverWarp(max);
    if (Lane() == 0) shared_.maxima[Warp()] = max;
    nan = __syncthreads_or(nan);
#pragma unroll
    for (int w = 0; w < kWarps; ++w) max = fmaxf(max, shared_.maxima[w]);
    return max;
  }

  __device__ void SumRaw() {
    const RawRow raw = SumRawTiles(raw_, num_tiles_);
    if (Lane() != 0) return;
    shared_.raw_max = raw.max;
    shared_.log_sum = raw.log_sum;
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
    return SumOverBlock(sum);
  }

  // Calls visit(distance, token) for every token of tiles [first, end) that is
  // not further than `cut`, and end_quarter(quarter) for every warp and quarter
  // after that. Barriers before and after.
  template <typename Visit, typename EndQuarter>
  __device__ __forceinline__ void ForEachInRow(uint32_t cut, int first, int end,
                                               const Visit& visit,
                                               const EndQuarter& end_quarter) {
#pragma unroll 1
    for (int base = first * kQuarters; base < end * kQuarters;
         base += Policy::kThreads) {
      __syncthreads();
      if (threadIdx.x == 0) shared_.num_found = 0;
      __syncthreads();
      const int own = base + static_cast<int>(threadIdx.x);
      if (own < end * kQuarters && DistanceOf(maxima_[own]) <= cut) {
        shared_.found[atomicAdd(&shared_.num_found, 1)] = own;
      }
      __syncthreads();
      VisitFound<kQuartersAtOnce>(shared_.num_found, cut, visit, end_quarter);
    }
    __syncthreads();
  }

  // The quarters that are found, each by a warp.
  template <int kAtOnce, typename Visit, typename EndQuarter>
  __device__ __forceinline__ void VisitFound(int num_found, uint32_t cut,
                                             const Visit& visit,
                                             const EndQuarter& end_quarter) {
#pragma unroll 1
    for (int i = Warp(); i < num_found; i += kWarps * kAtOnce) {
      // The last one stands in, so that no load waits for a decision.
      LaneLogits<T> loaded[kAtOnce];
#pragma unroll
      for (int a = 0; a < kAtOnce; ++a) {
        loaded[a] = LaneLogits<T>(
            logits_, shared_.found[min(i + a * kWarps, num_found - 1)]);
      }
#pragma unroll
      for (int a = 0; a < kAtOnce; ++a) {
        if (i + a * kWarps >= num_found) break;
        const int quarter = shared_.found[i + a * kWarps];
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
  // cut.
  template <typename Visit>
  __device__ __forceinline__ void ForEach(const Visit& visit) {
    if (!is_listed_) return ForEachInRow(cut_, 0, num_tiles_, visit);
    for (int i = threadIdx.x; i < shared_.num_listed; i += Policy::kThreads) {
      const Element element = shared_.list[i];
      if (element.distance <= cut_) visit(element.distance, element.token);
    }
  }

  // Lists what tiles [first, end) have within the cut; false if that is too
  // much.
  __device__ __noinline__ bool List(int first, int end) {
    __syncthreads();
    if (threadIdx.x == 0) shared_.num_listed = 0;
    ForEachInRow(cut_, first, end, [&](uint32_t distance, int token) {
      Append(distance, token);
    });
    return shared_.num_listed <= kListSize;
  }
  __device__ void Append(uint32_t distance, int token) {
    const int i = atomicAdd(&shared_.num_listed, 1);
    if (i < kListSize) {
      shared_.list[i] = {distance, token, WeightOf(distance)};
    }
  }

  // The same of the whole row where few quarters reach the cut, and nothing has
  // been listed yet.
  __device__ bool ListFew() {
    for (int q = threadIdx.x; q < num_tiles_ * kQuarters;
         q += Policy::kThreads) {
      if (DistanceOf(maxima_[q]) > cut_) continue;
      const int i = atomicAdd(&shared_.num_found, 1);
      if (i < kMaxThreads) shared_.found[i] = q;
    }
    __syncthreads();
    const int num_found = shared_.num_found;
    if (num_found > kMaxThreads) return false;
    VisitFound<kFewAtOnce>(
        num_found, cut_,
        [&](uint32_t distance, int token) { Append(distance, token); },
        [](int) {});
    __syncthreads();
    return is_listed_ = shared_.num_listed <= kListSize;
  }

  __device__ void ClearBins() {
    __syncthreads();
    for (int i = threadIdx.x; i < kBins; i += Policy::kThreads) {
      shared_.counts[i] = 0;
      shared_.low[i] = shared_.high[i] = 0;
    }
    if (threadIdx.x == 0) shared_.bin = -1;
    __syncthreads();
  }
  __device__ void AddToBin(int bin, Mass mass) {
    const uint32_t low = static_cast<uint32_t>(mass);
    const uint32_t old = atomicAdd(&shared_.low[bin], low);
    const uint32_t high =
        static_cast<uint32_t>(mass >> 32) + (old + low < old ? 1 : 0);
    if (high != 0) atomicAdd(&shared_.high[bin], high);
  }

  // Ranks [low, high] in bins of 2^shift each; those beyond are at the ends.
  __device__ static int ShiftOf(uint32_t low, uint32_t high) {
    static_assert(kBins == 1 << 9);
    const int bits = high > low ? 32 - __clz(high - low) : 0;
    return max(0, bits - 9);
  }
  __device__ static int BinOf(uint32_t rank, uint32_t low, uint32_t high,
                              int shift) {
    return static_cast<int>((min(max(rank, low), high) - low) >> shift);
  }

  // Finds the first bin at which counts, or masses, reach `target`.
  template <bool kByMass>
  __device__ void FindBin(Mass target) {
    const int t = threadIdx.x;
    Mass values[2] = {};
    int2 counts = {};
    Mass sum = 0;
    int count_sum = 0;
    if (t < kBins / 2) {
      counts = reinterpret_cast<const int2*>(shared_.counts)[t];
      if constexpr (kByMass) {
        const uint2 low = reinterpret_cast<const uint2*>(shared_.low)[t];
        const uint2 high = reinterpret_cast<const uint2*>(shared_.high)[t];
        values[0] = Mass{high.x} << 32 | low.x;
        values[1] = Mass{high.y} << 32 | low.y;
      } else {
        values[0] = counts.x;
        values[1] = counts.y;
      }
      sum = values[0] + values[1];
      count_sum = counts.x + counts.y;
#pragma unroll
      for (int distance = 1; distance < kWarpSize; distance *= 2) {
        const Mass other = __shfl_up_sync(kAllLanes, sum, distance);
        const int others = __shfl_up_sync(kAllLanes, count_sum, distance);
        if (Lane() >= distance) {
          sum += other;
          count_sum += others;
        }
      }
      if (Lane() == kWarpSize - 1) {
        shared_.sums[Warp()] = sum;
        shared_.count_sums[Warp()] = count_sum;
      }
    }
    __syncthreads();
    if (t < kBins / 2) {
#pragma unroll
      for (int w = 0; w < kScanWarps; ++w) {
        if (w >= Warp()) break;
        sum += shared_.sums[w];
        count_sum += shared_.count_sums[w];
      }
      const Mass middle = sum - values[1];
      const Mass before = middle - values[0];
      if (before < target && target <= sum) {
        const bool second = target > middle;
        shared_.bin = 2 * t + second;
        shared_.before = second ? middle : before;
        shared_.count = second ? counts.y : counts.x;
        shared_.count_up_to = count_sum - (second ? 0 : counts.y);
      }
    }
    __syncthreads();
  }

  // The lowest rank at which the number of elements of that rank or a lower
  // one, or their mass, reaches `target`; kAll if nothing does. Elements are
  // those for which for_each calls visit(rank, mass). After each round,
  // narrowed(end, count) is told that this many elements, by count at least,
  // are not beyond `end`. If not `exact`, the answer may be a higher rank that
  // no other element has or is below.
  template <typename ForEachRank, typename Narrowed>
  __device__ __forceinline__ uint32_t Find(bool by_mass, Mass target,
                                           RankRange range, bool exact,
                                           int max_rounds,
                                           const ForEachRank& for_each,
                                           const Narrowed& narrowed) {
    uint32_t low = range.low;
    uint32_t high = range.high;
    bool open = range.open;
#pragma unroll 1
    for (int round = 0; round < max_rounds; ++round) {
      const int shift = ShiftOf(low, high);
      ClearBins();
      for_each([&](uint32_t rank, Mass mass) {
        if (!open && (rank < low || rank > high)) return;
        const int bin = BinOf(rank, low, high, shift);
        atomicAdd(&shared_.counts[bin], 1);
        if (by_mass) AddToBin(bin, mass);
      });
      __syncthreads();
      if (by_mass) {
        FindBin<true>(target);
      } else {
        FindBin<false>(target);
      }
      const int bin = shared_.bin;
      if (bin < 0) return kAll;
      target -= shared_.before;
      const int count = shared_.count;
      const int count_up_to = shared_.count_up_to;
      const uint32_t begin = low + (static_cast<uint32_t>(bin) << shift);
      const uint32_t end = min(high, begin + ((1u << shift) - 1));
      high = open && end == high ? kAll : end;
      low = open && bin == 0 ? 0 : begin;
      open = false;
      narrowed(high, count_up_to);
      if (high == low || (!exact && count == 1)) break;
    }
    return high;
  }

  // By distance, among those within the cut: how far one may be.
  __device__ __noinline__ uint32_t FindByDistance(bool by_mass, Mass target) {
    return Find(
        by_mass, target, DistanceRange(scale_, cut_), /*exact=*/false, 32,
        [&](const auto& visit) {
          ForEach([&](uint32_t distance, int) {
            visit(distance, by_mass ? WeightOf(distance) : 0);
          });
        },
        [&](uint32_t end, int count) {
          if (is_listed_ || count > kListSize) return;
          Lower(end);
          is_listed_ = List(0, num_tiles_);
        });
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
            [&](uint32_t, int token) { atomicMin(&shared_.token, token); });
      }
    }
    __syncthreads();
    return shared_.token;
  }

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
    for (int q = threadIdx.x; q < num_quarters; q += Policy::kThreads) {
      const uint32_t distance = DistanceOf(maxima_[q]);
      if (distance > cut_) continue;
      atomicAdd(&shared_.counts[BinOf(distance, range.low, range.high, shift)],
                1);
    }
    __syncthreads();
    FindBin<false>(k);
    if (shared_.bin < 0) return;
    const uint32_t end =
        range.low + (static_cast<uint32_t>(shared_.bin + 1) << shift) - 1;
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
    ForEach([&](uint32_t distance, int) {
      const float exponent = ExponentOf(distance);
      const float weight = FastExp2(-exponent);
      sum += WeightOf(distance);
      if (weight > 0) weighted += __float2ull_rz(weight * exponent * kUnit);
    });
    sum = SumOverBlock(sum);
    weighted = SumOverBlock(weighted);
    mean_ = static_cast<float>(static_cast<double>(weighted) /
                               static_cast<double>(sum));
    typical_cut_ = Find(
        /*by_mass=*/true, Share(typical_p, sum), DistanceRange(1.0f, kAll),
        /*exact=*/false, 32,
        [&](const auto& visit) {
          ForEach([&](uint32_t distance, int) {
            visit(TypicalRankOf(distance), WeightOf(distance));
          });
        },
        [](uint32_t, int) {});
    is_typical_ = true;
  }

  __device__ __noinline__ Mass SumKept() {
    Mass sum = 0;
    ForEach([&](uint32_t distance, int) {
      if (Keeps(distance)) sum += WeightOf(distance);
    });
    return SumOverBlock(sum);
  }

  // The token at which what is listed and kept exceeds `target`.
  __device__ __noinline__ TokenId DrawFromList(Mass target) {
    const auto last = static_cast<uint32_t>(vocab_size_ - 1);
    return static_cast<TokenId>(Find(
        /*by_mass=*/true, target + 1, {.low = 0, .high = last, .open = false},
        /*exact=*/true, 32,
        [&](const auto& visit) {
          ForEach([&](uint32_t distance, int token) {
            if (Keeps(distance)) visit(token, WeightOf(distance));
          });
        },
        [](uint32_t, int) {}));
  }

  // From one tile: what of it is listed.
  __device__ TokenId DrawFromTile(int tile, Mass target, Mass of_tile) {
    is_listed_ = List(tile, tile + 1);
    const Mass total = SumKept();
    if (total == 0) return Likeliest();
    return DrawFromList(Rescaled(target, of_tile, total));
  }

  // From few tokens that are listed, each compared with all others by as many
  // lanes as there are for it.
  __device__ __forceinline__ TokenId DrawFromShortList(int top_k, float top_p,
                                                       double uniform) {
    constexpr int kLanes = Policy::kThreads / kShortList;
    const int size = shared_.num_listed;
    const int index = threadIdx.x / kLanes;
    const int part = threadIdx.x % kLanes;
    const bool exists = index < size;
    const Element own = exists ? shared_.list[index] : Element{kNever, 0, 0};
    int num_above = 0;
    Mass above = 0;
    for (int i = part; i < size; i += kLanes) {
      const Element other = shared_.list[i];
      if (other.distance >= own.distance) continue;
      ++num_above;
      above += other.weight;
    }
#pragma unroll
    for (int distance = 1; distance < kLanes; distance *= 2) {
      num_above += __shfl_xor_sync(kAllLanes, num_above, distance);
      above += __shfl_xor_sync(kAllLanes, above, distance);
    }
    bool kept = exists && num_above < top_k;
    if (top_p < 1.0f) {
      const Mass total =
          SumOnce(kept && part == 0 ? own.weight : 0, shared_.sums);
      kept = kept && above < Share(top_p, total);
    }
    const uint32_t furthest =
        __reduce_max_sync(kAllLanes, kept ? own.distance : 0);
    if (Lane() == 0) shared_.furthest[Warp()] = furthest;
    const Mass total =
        SumOnce(kept && part == 0 ? own.weight : 0, shared_.more_sums);
    uint32_t cut = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) cut = max(cut, shared_.furthest[w]);
    const Mass target = Target(uniform, total);
    Mass before = 0;
    for (int i = part; i < size; i += kLanes) {
      const Element other = shared_.list[i];
      if (other.token < own.token && other.distance <= cut) {
        before += other.weight;
      }
    }
#pragma unroll
    for (int distance = 1; distance < kLanes; distance *= 2) {
      before += __shfl_xor_sync(kAllLanes, before, distance);
    }
    const bool mine =
        kept && part == 0 && before <= target && target < before + own.weight;
    return mine ? own.token : kNotMine;
  }

  // From all tokens of a row whose tiles all have a thread.
  __device__ __forceinline__ TokenId DrawFromFewTiles(double uniform) {
    const int own_tile = threadIdx.x;
    const Mass own = own_tile < num_tiles_ ? MassOfTile(own_tile) : 0;
    Mass total;
    const Mass up_to = ScanOverBlock(own, shared_.sums, total);
    const Mass target = Target(uniform, total);
    if (up_to - own <= target && target < up_to) {
      shared_.tile = own_tile;
      shared_.before_tile = up_to - own;
      shared_.of_tile = own;
    }
    __syncthreads();
    return DrawInTile(shared_.tile, target - shared_.before_tile,
                      shared_.of_tile);
  }

  __device__ TokenId DrawInTile(int tile, Mass target, Mass of_tile) {
    constexpr int kEach = kTileSize / Policy::kThreads;
    const int first = tile * kTileSize + static_cast<int>(threadIdx.x) * kEach;
    const auto token_of = [first](int i) { return first + i; };
    float x[kEach];
    logits_.Logits(token_of, x);
    if (edits_.any()) {
      EditWindow window(edits_, first_edits_[tile]);
      window.Apply((tile + 1) * kTileSize, token_of, x);
    }
    Mass weights[kEach];
    Mass sum = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const uint32_t distance = DistanceOf(x[i]);
      weights[i] = distance == kNever ? 0 : WeightOf(distance);
      sum += weights[i];
    }
    Mass total;
    Mass before = ScanOverBlock(sum, shared_.more_sums, total) - sum;
    // Each of its tokens weighs less than a unit, and all less than rounding.
    if (total == 0) return ByFirst(Likeliest());
    target = Rescaled(target, of_tile, total);
    TokenId token = kNotMine;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (before <= target && target < before + weights[i]) token = first + i;
      before += weights[i];
    }
    return token;
  }

  // A tile's mass as it was read differs by rounding from its tokens'.
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
      Mass sum = own;
#pragma unroll
      for (int distance = 1; distance < kWarpSize; distance *= 2) {
        const Mass other = __shfl_up_sync(kAllLanes, sum, distance);
        if (Lane() >= distance) sum += other;
      }
      __syncthreads();
      if (Lane() == kWarpSize - 1) shared_.sums[Warp()] = sum;
      __syncthreads();
      sum += before;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        if (w < Warp()) sum += shared_.sums[w];
        before += shared_.sums[w];
      }
      if (sum - own <= target && target < sum) {
        shared_.tile = tile;
        shared_.before_tile = sum - own;
        shared_.of_tile = own;
      }
    }
    __syncthreads();
  }

  __device__ __noinline__ TokenId DrawFromAll(double uniform) {
    const Mass target = Target(uniform, MassOfTiles());
    FindTile(target, [&](int tile) { return MassOfTile(tile); });
    return DrawFromTile(shared_.tile, target - shared_.before_tile,
                        shared_.of_tile);
  }

  // From more tokens than a list holds: first the tile, by halves of halves.
  __device__ __noinline__ TokenId DrawFromRow(Mass target) {
    int first = 0;
    int end = num_tiles_;
    int shift = 0;
    while ((end - first - 1) >> shift >= kBins) ++shift;
    for (;; shift = max(0, shift - 9)) {
      ClearBins();
      Mass own = 0;
      ForEachInRow(
          cut_, first, end,
          [&](uint32_t distance, int) {
            if (Keeps(distance)) own += WeightOf(distance);
          },
          [&](int quarter) {
            const Mass sum = SumOverWarp(own);
            const int bin = (quarter / kQuarters - first) >> shift;
            if (Lane() == 0) AddToBin(bin, sum);
            own = 0;
          });
      FindBin<true>(target + 1);
      target -= shared_.before;
      first += shared_.bin << shift;
      end = min(end, first + (1 << shift));
      if (shift == 0) break;
    }
    is_listed_ = List(first, first + 1);
    return DrawFromList(target);
  }

  Shared& shared_;
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
  // Whether the list has all within the cut.
  bool is_listed_ = false;
};

template <typename T, typename Policy>
__global__ __launch_bounds__(
    Policy::kThreads,
    Policy::kMinBlocks) void DrawRows(const __grid_constant__ Params p) {
  __shared__ Shared shared;
  LetNextStart();
  const int num_draws = *p.in.num_draws;
  const bool exists = static_cast<int>(blockIdx.x) < num_draws;
  CudaDraw draw;
  SamplingParams params;
  float cum = MinusInf();
  int row_params = -1;
  if (exists) {
    draw = p.in.draws[blockIdx.x];
    cum = p.in.cum_log_probs[draw.row];
    row_params = p.in.row_params[draw.row];
  }
  const bool alive = row_params >= 0 && cum > MinusInf();
  if (alive) params = p.in.params[row_params];
  const double uniform = Uniform({.seed = params.seed,
                                  .sample = draw.sample,
                                  .position = draw.position,
                                  .purpose = RandomPurpose::kDraw},
                                 0);
  Sampler<T, Policy>::Clear(shared, p.in.vocab_size);
  WaitForPrevious();
  if (!exists) return;
  Candidate candidate = {draw.beam, kNoToken, MinusInf()};
  if (alive) {
    Sampler<T, Policy> sampler(p, draw, shared);
    candidate.token = sampler.Draw(params, uniform);
    if (candidate.token == kNotMine) return;
    if (candidate.token >= 0) {
      candidate.cum_log_prob = __fadd_rn(cum, sampler.LogProb(candidate.token));
    }
  } else if (threadIdx.x != 0) {
    return;
  }
  p.candidates[draw.candidate] = candidate;
}

// What the filters leave of each float32 row.
__global__ __launch_bounds__(
    ManyDraws::kThreads,
    ManyDraws::kMinBlocks) void CutRows(const __grid_constant__ Params p,
                                        RowCut* cuts) {
  __shared__ Shared shared;
  LetNextStart();
  const CudaDraw draw = {.row = static_cast<int>(blockIdx.x)};
  const float cum = p.in.cum_log_probs[draw.row];
  const int row_params = p.in.row_params[draw.row];
  using RowSampler = Sampler<float, ManyDraws>;
  RowSampler::Clear(shared, p.in.vocab_size);
  WaitForPrevious();
  RowCut cut;
  cut.token = kNoToken;
  if (row_params >= 0 && cum > MinusInf()) {
    RowSampler sampler(p, draw, shared);
    cut = sampler.Cut(p.in.params[row_params]);
  }
  if (threadIdx.x == 0) cuts[draw.row] = cut;
}

template <typename T, typename Policy>
absl::Status LaunchDraw(const Params& p, cudaStream_t stream) {
  return Launch(DrawRows<T, Policy>,
                {.grid = dim3(p.in.max_draws), .block = dim3(Policy::kThreads)},
                stream, p);
}

template <typename T>
absl::Status LaunchDraw(const Params& p, const CudaDevice& device,
                        cudaStream_t stream) {
  const bool few = p.in.max_draws <= device.num_sms;
  return few ? LaunchDraw<T, FewDraws>(p, stream)
             : LaunchDraw<T, ManyDraws>(p, stream);
}

}  // namespace

absl::Status FindRowCuts(const Params& p, RowCut* cuts, cudaStream_t stream) {
  return Launch(
      CutRows,
      {.grid = dim3(p.in.num_rows), .block = dim3(ManyDraws::kThreads)}, stream,
      p, cuts);
}

absl::Status DrawTokens(const Params& p, const CudaDevice& device,
                        cudaStream_t stream) {
  return p.in.dtype == DType::kFloat32
             ? LaunchDraw<float>(p, device, stream)
             : LaunchDraw<uint16_t>(p, device, stream);
}

}  // namespace espalier::cuda_sample
