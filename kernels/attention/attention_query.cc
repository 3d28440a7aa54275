#include "kernels/attention/attention_query.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/elementwise/elementwise_rows.h"

// Compiles the rest once for each instruction set; the order matters.
// clang-format off
#include "kernels/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention_query.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "hwy/contrib/math/math-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace espalier::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::ScalableTag<float>;
using OneFloat = hn::CappedTag<float, 1>;

// Positions of a block; a multiple of every vector's lanes.
constexpr int kBlock = 64;
// Queries that share each load of a key or value.
constexpr int kMaxQueries = 4;
constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

// The state of the attention of kQueries queries, and the current block.
template <int kQueries>
class Attender {
 public:
  Attender(const AttentionQuery& query, int first_query)
      : query_(query),
        first_query_(first_query),
        q_(query.q + first_query * query.head_dim),
        out_(query.out + first_query * query.head_dim),
        scale_(query.scale) {
    std::fill_n(out_, kQueries * query.head_dim, 0.0f);
    std::fill_n(maxima_, kQueries, kMinusInf);
  }

  void Run() {
    for (int begin = query_.first_position; begin < query_.num_positions;
         begin += kBlock) {
      count_ = std::min(kBlock, query_.num_positions - begin);
      begin_ = begin;
      FindSlots(begin);
      for (int i = 0; i < count_; ++i) ScoreKey(i);
      for (int h = 0; h < kQueries; ++h) WeighBlock(h);
      AddAllValues();
    }
    for (int h = 0; h < kQueries; ++h) {
      const float factor = 1.0f / sums_[h];
      for (int i = 0; i < query_.head_dim; ++i) {
        out_[h * query_.head_dim + i] *= factor;
      }
    }
  }

 private:
  void FindSlots(int begin) {
    int page = begin / query_.page_size;
    int slot = begin % query_.page_size;
    for (int i = 0; i < count_; ++i) {
      const size_t row =
          size_t(query_.pages[page].value) * query_.page_size + slot;
      offsets_[i] = row * query_.slot_stride;
      if (++slot == query_.page_size) {
        slot = 0;
        ++page;
      }
    }
  }

  // Adds the products of dimensions [dim, end) to the scores, and returns the
  // first dimension that does not fill a vector of D.
  template <class D>
  int Dot(D d, const float* key, int dim, float (&scores)[kQueries]) const {
    const int lanes = hn::MaxLanes(d);
    if (dim + lanes > query_.head_dim) return dim;
    hn::Vec<D> sums[kQueries];
    HWY_UNROLL(4)
    for (int h = 0; h < kQueries; ++h) sums[h] = hn::Zero(d);
    for (; dim + lanes <= query_.head_dim; dim += lanes) {
      const auto k = hn::LoadU(d, key + dim);
      HWY_UNROLL(4)
      for (int h = 0; h < kQueries; ++h) {
        const auto q = hn::LoadU(d, q_ + h * query_.head_dim + dim);
        sums[h] = hn::MulAdd(q, k, sums[h]);
      }
    }
    HWY_UNROLL(4)
    for (int h = 0; h < kQueries; ++h) {
      scores[h] += hn::GetLane(hn::SumOfLanes(d, sums[h]));
    }
    return dim;
  }

  void ScoreKey(int i) {
    const float* key = query_.keys + offsets_[i];
    float scores[kQueries] = {};
    Dot(OneFloat(), key, Dot(Floats(), key, 0, scores), scores);
    for (int h = 0; h < kQueries; ++h) scores_[h][i] = scores[h] * scale_;
  }

  void AddBiases(int h, float* scores) const {
    const int most = query_.max_distance;
    const float* const biases =
        query_.biases + size_t(first_query_ + h) * (2 * most + 1) + most;
    for (int i = 0; i < count_; ++i) {
      scores[i] +=
          biases[std::clamp(begin_ + i - query_.position, -most, most)];
    }
  }

  // Turns the block's scores of query h into weights, relative to the maximum
  // so far, and rescales the sums that are relative to the previous maximum.
  void WeighBlock(int h) {
    const Floats d;
    const int lanes = hn::MaxLanes(d);
    float* weights = scores_[h];
    if (query_.biases != nullptr) AddBiases(h, weights);
    if (query_.soft_cap > 0) SoftCapRow(query_.soft_cap, count_, weights);
    const float maximum =
        std::max(maxima_[h], *std::max_element(weights, weights + count_));
    // While all scores are -inf, weights are relative to 0.
    const float base = maximum == kMinusInf ? 0.0f : maximum;
    // Lanes past the end get the weight exp(-inf) = 0.
    std::fill(weights + count_, weights + kBlock, kMinusInf);
    auto sum = hn::Zero(d);
    for (int i = 0; i < count_; i += lanes) {
      const auto x = hn::Sub(hn::Load(d, weights + i), hn::Set(d, base));
      // Highway's exp of NaN is 0. Keeping the NaN weight in the sum makes all
      // of the output NaN.
      const auto weight = hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x));
      hn::Store(weight, d, weights + i);
      sum = hn::Add(sum, weight);
    }
    const auto rescale = hn::Exp(d, hn::Set(d, maxima_[h] - base));
    rescale_[h] = hn::GetLane(rescale);
    maxima_[h] = maximum;
    sums_[h] = sums_[h] * rescale_[h] + hn::GetLane(hn::SumOfLanes(d, sum));
  }

  // Adds the block's weighted values to `out_`, kVectors vectors of D from
  // dimension `dim` on.
  template <int kVectors, class D>
  void AddValues(D d, int dim) {
    const int lanes = hn::MaxLanes(d);
    const int head_dim = query_.head_dim;
    hn::Vec<D> sums[kQueries][kVectors];
    HWY_UNROLL(4)
    for (int h = 0; h < kQueries; ++h) {
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) {
        sums[h][v] =
            hn::Mul(hn::LoadU(d, out_ + h * head_dim + dim + v * lanes),
                    hn::Set(d, rescale_[h]));
      }
    }
    for (int i = 0; i < count_; ++i) {
      const float* value = query_.values + offsets_[i] + dim;
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) {
        const auto x = hn::LoadU(d, value + v * lanes);
        HWY_UNROLL(4)
        for (int h = 0; h < kQueries; ++h) {
          sums[h][v] = hn::MulAdd(hn::Set(d, scores_[h][i]), x, sums[h][v]);
        }
      }
    }
    HWY_UNROLL(4)
    for (int h = 0; h < kQueries; ++h) {
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) {
        hn::StoreU(sums[h][v], d, out_ + h * head_dim + dim + v * lanes);
      }
    }
  }

  void AddAllValues() {
    const int lanes = hn::MaxLanes(Floats());
    int dim = 0;
    for (; dim + 4 * lanes <= query_.head_dim; dim += 4 * lanes) {
      AddValues<4>(Floats(), dim);
    }
    for (; dim + lanes <= query_.head_dim; dim += lanes) {
      AddValues<1>(Floats(), dim);
    }
    for (; dim < query_.head_dim; ++dim) AddValues<1>(OneFloat(), dim);
  }

  const AttentionQuery& query_;
  const int first_query_;
  const float* q_;
  float* out_;
  const float scale_;
  int begin_ = 0;                               // start of the block
  int count_ = 0;                               // positions in the block
  size_t offsets_[kBlock];                      // their slots' offsets
  alignas(64) float scores_[kQueries][kBlock];  // then weights
  float rescale_[kQueries];
  float maxima_[kQueries];
  float sums_[kQueries] = {};
};

void AttendOne(const AttentionQuery& query) {
  for (int h = 0; h < query.num_queries; h += kMaxQueries) {
    switch (std::min(kMaxQueries, query.num_queries - h)) {
      case 1:
        Attender<1>(query, h).Run();
        break;
      case 2:
        Attender<2>(query, h).Run();
        break;
      case 3:
        Attender<3>(query, h).Run();
        break;
      default:
        Attender<4>(query, h).Run();
    }
  }
}

}  // namespace espalier::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace espalier {

HWY_EXPORT(AttendOne);

void AttendOne(const AttentionQuery& query) {
  HWY_DYNAMIC_DISPATCH(AttendOne)(query);
}

}  // namespace espalier
#endif  // HWY_ONCE
