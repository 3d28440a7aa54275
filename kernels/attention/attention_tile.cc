#include "kernels/attention/attention_tile.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/elementwise/elementwise_rows.h"
#include "kernels/scratch.h"

// Compiles the rest once for each instruction set; the order matters.
// clang-format off
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention_tile.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "hwy/contrib/math/math-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::ScalableTag<float>;
using OneFloat = hn::CappedTag<float, 1>;
using Vector = hn::Vec<Floats>;

constexpr int kLanes = static_cast<int>(hn::MaxLanes(Floats()));
// Positions of a block; a multiple of every vector's lanes.
constexpr int kBlock = 64;
// Queries that share each load of a key or value.
constexpr int kSharing = 4;
// Vectors of values that are added at once: sums fill half of the registers.
constexpr int kValueVectors = kLanes < 16 ? 2 : 4;
// Number of queries from which on a block's keys and values are copied, because
// slots that are a power of two apart compete for a few sets of the cache.
constexpr int kMinQueriesToCopy = 2 * kSharing;
constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

constexpr int RoundUpToLanes(int count) {
  return (count + kLanes - 1) / kLanes * kLanes;
}

// Returns the sums of the lanes of each of kNum vectors, a power of two that is
// at most kLanes. Neighbours are added first, then the sums of neighbours.
template <int kNum>
HWY_INLINE Vector SumLanesOfEach(const Vector* v) {
  if constexpr (kNum == 1) {
    return v[0];
#if HWY_TARGET != HWY_SCALAR
  } else {
    const Floats d;
    const auto low = SumLanesOfEach<kNum / 2>(v);
    const auto high = SumLanesOfEach<kNum / 2>(v + kNum / 2);
    return hn::Add(hn::ConcatEven(d, high, low), hn::ConcatOdd(d, high, low));
#endif
  }
}

// The state of the queries of a tile, and the current block.
class TileAttender {
 public:
  explicit TileAttender(const AttentionTile& tile)
      : tile_(tile), num_queries_(static_cast<int>(tile.queries.size())) {}

  void Run() {
    int end = 0;
    for (int r = 0; r < num_queries_; ++r) {
      std::fill_n(tile_.queries[r].out, tile_.head_dim, 0.0f);
      maxima_[r] = kMinusInf;
      sums_[r] = 0;
      end = std::max(end, tile_.queries[r].num_positions);
    }
    for (begin_ = tile_.first_position; begin_ < end; begin_ += kBlock) {
      FindBlock(std::min(kBlock, end - begin_));
      for (int r = 0; r < num_queries_; r += kSharing) {
        ScoreQueries(r);
        for (int h = r; h < std::min(r + kSharing, num_queries_); ++h) {
          if (counts_[h] > 0) WeighBlock(h);
        }
      }
      for (int r = 0; r < num_queries_; r += kSharing) AddAllValues(r);
    }
    for (int r = 0; r < num_queries_; ++r) {
      const float factor = 1.0f / sums_[r];
      for (int i = 0; i < tile_.head_dim; ++i) {
        tile_.queries[r].out[i] *= factor;
      }
    }
  }

 private:
  void FindBlock(int num_positions) {
    int page = begin_ / tile_.page_size;
    int slot = begin_ % tile_.page_size;
    for (int i = 0; i < num_positions; ++i) {
      const size_t row =
          size_t(tile_.pages[page].value) * tile_.page_size + slot;
      offsets_[i] = row * tile_.slot_stride;
      if (++slot == tile_.page_size) {
        slot = 0;
        ++page;
      }
    }
    PadOffsets(num_positions);
    keys_ = tile_.keys;
    values_ = tile_.values;
    for (int r = 0; r < num_queries_; ++r) {
      counts_[r] =
          std::clamp(tile_.queries[r].num_positions - begin_, 0, kBlock);
    }
    if (num_queries_ >= kMinQueriesToCopy) CopyBlock(num_positions);
  }

  // Keys are scored several at once.
  void PadOffsets(int num_positions) {
    std::fill(offsets_ + num_positions,
              offsets_ + RoundUpToLanes(num_positions),
              offsets_[num_positions - 1]);
  }

  void CopyBlock(int num_positions) {
    const size_t head_dim = tile_.head_dim;
    float* const keys = Scratch(ScratchUse::kKeys, kBlock * head_dim);
    float* const values = Scratch(ScratchUse::kValues, kBlock * head_dim);
    for (int i = 0; i < num_positions; ++i) {
      CopyVector(keys_ + offsets_[i], keys + i * head_dim);
      CopyVector(values_ + offsets_[i], values + i * head_dim);
      offsets_[i] = i * head_dim;
    }
    PadOffsets(num_positions);
    keys_ = keys;
    values_ = values;
  }

  // A call of memmove would take as long as the copy.
  void CopyVector(const float* from, float* to) const {
    const Floats d;
    int dim = 0;
    for (; dim + kLanes <= tile_.head_dim; dim += kLanes) {
      hn::StoreU(hn::LoadU(d, from + dim), d, to + dim);
    }
    for (; dim < tile_.head_dim; ++dim) to[dim] = from[dim];
  }

  // Scores up to kSharing queries from `first` on.
  void ScoreQueries(int first) {
    switch (std::min(kSharing, num_queries_ - first)) {
      case 1:
        return Score<1>(first);
      case 2:
        return Score<2>(first);
      case 3:
        Score<2>(first);
        return Score<1>(first + 2);
      default:
        return Score<4>(first);
    }
  }

  template <int kQueries>
  void Score(int first) {
    constexpr int kKeys = std::max(1, kLanes / kQueries);
    const float* q[kQueries];
    for (int h = 0; h < kQueries; ++h) q[h] = tile_.queries[first + h].q;
    const int count =
        *std::max_element(counts_ + first, counts_ + first + kQueries);
    for (int i = 0; i < count; i += kKeys) ScoreKeys<kQueries>(q, first, i);
  }

  // Scores keys [i, i + kLanes / kQueries) of the block.
  //   q  of queries `first` and the next ones
  template <int kQueries>
  HWY_INLINE void ScoreKeys(const float* const (&q)[kQueries], int first,
                            int i) {
    constexpr int kKeys = std::max(1, kLanes / kQueries);
    constexpr int kScores = kQueries * kKeys;
    static_assert(kScores % kLanes == 0);
    const Floats d;
    const int head_dim = tile_.head_dim;
    const float* keys[kKeys];
    for (int j = 0; j < kKeys; ++j) {
      keys[j] = keys_ + offsets_[i + j];
    }
    Vector sums[kScores];
    HWY_UNROLL(16)
    for (int j = 0; j < kScores; ++j) sums[j] = hn::Zero(d);
    int dim = 0;
    for (; dim + kLanes <= head_dim; dim += kLanes) {
      Vector k[kKeys];
      HWY_UNROLL(16)
      for (int j = 0; j < kKeys; ++j) k[j] = hn::LoadU(d, keys[j] + dim);
      HWY_UNROLL(4)
      for (int h = 0; h < kQueries; ++h) {
        const auto x = hn::LoadU(d, q[h] + dim);
        HWY_UNROLL(16)
        for (int j = 0; j < kKeys; ++j) {
          sums[h * kKeys + j] = hn::MulAdd(x, k[j], sums[h * kKeys + j]);
        }
      }
    }
    HWY_ALIGN float scores[kScores];
    for (int j = 0; j < kScores; j += kLanes) {
      hn::Store(SumLanesOfEach<kLanes>(sums + j), d, scores + j);
    }
    if (dim < head_dim) {
      for (int h = 0; h < kQueries; ++h) {
        for (int j = 0; j < kKeys; ++j) {
          scores[h * kKeys + j] += DotRest(q[h], keys[j], dim);
        }
      }
    }
    for (int j = 0; j < kScores; j += kLanes) {
      hn::Store(hn::Mul(hn::Load(d, scores + j), hn::Set(d, tile_.scale)), d,
                scores + j);
    }
    for (int h = 0; h < kQueries; ++h) {
      std::copy_n(scores + h * kKeys, kKeys, &scores_[first + h][i]);
    }
  }

  // Returns the sum over the dimensions from `dim` on.
  float DotRest(const float* q, const float* key, int dim) const {
    const OneFloat d;
    auto sum = hn::Zero(d);
    for (; dim < tile_.head_dim; ++dim) {
      sum = hn::MulAdd(hn::LoadU(d, q + dim), hn::LoadU(d, key + dim), sum);
    }
    return hn::GetLane(sum);
  }

  void AddBiases(int r, float* scores) const {
    const int most = tile_.max_distance;
    const TileQuery& query = tile_.queries[r];
    const float* const biases = query.biases + most;
    for (int i = 0; i < counts_[r]; ++i) {
      scores[i] += biases[std::clamp(begin_ + i - query.position, -most, most)];
    }
  }

  // Turns the block's scores of query r into weights, relative to the maximum
  // so far, and rescales the sums that are relative to the previous maximum.
  void WeighBlock(int r) {
    const Floats d;
    float* weights = scores_[r];
    const int count = counts_[r];
    if (tile_.queries[r].biases != nullptr) AddBiases(r, weights);
    if (tile_.soft_cap > 0) SoftCapRow(tile_.soft_cap, count, weights);
    // Lanes past the end get the weight exp(-inf) = 0.
    std::fill(weights + count, weights + RoundUpToLanes(count), kMinusInf);
    auto most = hn::Set(d, maxima_[r]);
    for (int i = 0; i < count; i += kLanes) {
      most = hn::Max(most, hn::Load(d, weights + i));
    }
    const float maximum = hn::GetLane(hn::MaxOfLanes(d, most));
    // While all scores are -inf, weights are relative to 0.
    const float base = maximum == kMinusInf ? 0.0f : maximum;
    auto sum = hn::Zero(d);
    for (int i = 0; i < count; i += kLanes) {
      const auto x = hn::Sub(hn::Load(d, weights + i), hn::Set(d, base));
      // Highway's exp of NaN is 0. Keeping the NaN weight in the sum makes all
      // of the output NaN.
      const auto weight = hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x));
      hn::Store(weight, d, weights + i);
      sum = hn::Add(sum, weight);
    }
    const auto rescale = hn::Exp(d, hn::Set(d, maxima_[r] - base));
    rescale_[r] = hn::GetLane(rescale);
    maxima_[r] = maximum;
    sums_[r] = sums_[r] * rescale_[r] + hn::GetLane(hn::SumOfLanes(d, sum));
  }

  // Adds the weighted values of up to kSharing queries from `first` on to their
  // outputs. Queries may see different numbers of the block's positions, which
  // are added one after the other.
  void AddAllValues(int first) {
    const int num = std::min(kSharing, num_queries_ - first);
    if (std::all_of(counts_ + first, counts_ + first + num,
                    [&](int count) { return count == counts_[first]; })) {
      switch (num) {
        case 1:
          return AddValuesOf<1>(first);
        case 2:
          return AddValuesOf<2>(first);
        case 3:
          return AddValuesOf<3>(first);
        default:
          return AddValuesOf<4>(first);
      }
    }
    for (int r = first; r < first + num; ++r) AddValuesOf<1>(r);
  }

  // REQUIRES: the queries see as many positions each.
  template <int kQueries>
  void AddValuesOf(int first) {
    if (counts_[first] == 0) return;
    const int head_dim = tile_.head_dim;
    int dim = 0;
    for (; dim + kValueVectors * kLanes <= head_dim;
         dim += kValueVectors * kLanes) {
      AddValues<kQueries, kValueVectors>(Floats(), first, dim);
    }
    for (; dim + kLanes <= head_dim; dim += kLanes) {
      AddValues<kQueries, 1>(Floats(), first, dim);
    }
    for (; dim < head_dim; ++dim)
      AddValues<kQueries, 1>(OneFloat(), first, dim);
  }

  // Adds dimensions from `dim` on, kVectors vectors of D.
  template <int kQueries, int kVectors, class D>
  HWY_INLINE void AddValues(D d, int first, int dim) {
    const int lanes = static_cast<int>(hn::MaxLanes(d));
    float* outs[kQueries];
    const float* weights[kQueries];
    hn::Vec<D> sums[kQueries][kVectors];
    HWY_UNROLL(4)
    for (int h = 0; h < kQueries; ++h) {
      outs[h] = tile_.queries[first + h].out + dim;
      weights[h] = scores_[first + h];
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) {
        sums[h][v] = hn::Mul(hn::LoadU(d, outs[h] + v * lanes),
                             hn::Set(d, rescale_[first + h]));
      }
    }
    const int count = counts_[first];
    for (int i = 0; i < count; ++i) {
      const float* value = values_ + offsets_[i] + dim;
      hn::Vec<D> x[kVectors];
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) x[v] = hn::LoadU(d, value + v * lanes);
      HWY_UNROLL(4)
      for (int h = 0; h < kQueries; ++h) {
        const auto weight = hn::Set(d, weights[h][i]);
        HWY_UNROLL(4)
        for (int v = 0; v < kVectors; ++v) {
          sums[h][v] = hn::MulAdd(weight, x[v], sums[h][v]);
        }
      }
    }
    HWY_UNROLL(4)
    for (int h = 0; h < kQueries; ++h) {
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) {
        hn::StoreU(sums[h][v], d, outs[h] + v * lanes);
      }
    }
  }

  const AttentionTile& tile_;
  const int num_queries_;
  int begin_ = 0;                // start of the block
  const float* keys_ = nullptr;  // with offsets_
  const float* values_ = nullptr;
  size_t offsets_[kBlock];       // the block's positions
  int counts_[kMaxTileQueries];  // positions of the block that a query sees
  float rescale_[kMaxTileQueries];
  float maxima_[kMaxTileQueries];
  float sums_[kMaxTileQueries];
  // Scores, then their weights.
  HWY_ALIGN float scores_[kMaxTileQueries][kBlock];
};

void AttendTile(const AttentionTile& tile) { TileAttender(tile).Run(); }

}  // namespace espalier::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier {

HWY_EXPORT(AttendTile);

void AttendTile(const AttentionTile& tile) {
  HWY_DYNAMIC_DISPATCH(AttendTile)(tile);
}

}  // namespace espalier
#endif  // HWY_ONCE
