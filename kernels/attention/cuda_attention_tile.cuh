// Sixteen rows of attention on the tensor cores of a warp.
#pragma once

#include <type_traits>

#include "kernels/attention/cuda_attention_spans.cuh"
#include "kernels/cuda_ptx.cuh"
#include "kernels/cuda_wgmma.cuh"

namespace espalier::cuda_attention {

// ---- Matrix instructions ----------------------------------------------------

__device__ __forceinline__ void LdMatrixX4Trans(uint32_t (&m)[4],
                                                uint32_t from) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
      : "r"(from)
      : "memory");
}

template <typename T>
__device__ __forceinline__ uint32_t Pack(float low, float high) {
  uint32_t bits;
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 pair = __floats2half2_rn(low, high);
    bits = *reinterpret_cast<const uint32_t*>(&pair);
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    bits = *reinterpret_cast<const uint32_t*>(&pair);
  }
  return bits;
}

// ---- A warp's 16 rows -------------------------------------------------------

// Online softmax: values weighted by 2^(score - maximum so far). A lane has
// rows lane / 4 and that plus 8, and of every eight columns two.
template <typename T, int kHeadDim>
class RowTile {
 public:
  __device__ __forceinline__ void LoadRows(const Params& params,
                                           const WorkTile& unit,
                                           int first_row) {
    const int lane = threadIdx.x % 32;
    const uint32_t* queries[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      rows_[r] = RowOf(params, unit, first_row + lane / 4 + 8 * r);
      queries[r] = reinterpret_cast<const uint32_t*>(
                       static_cast<const T*>(params.q) +
                       int64_t{unit.item.first_query + rows_[r].query} *
                           params.q_stride +
                       rows_[r].head * kHeadDim) +
                   lane % 4;
    }
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; ++k) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        q_[k][r] = queries[r][8 * k];
        q_[k][r + 2] = queries[r][8 * k + 4];
      }
    }
  }

  // Call before the first Attend.
  template <bool kHasOptions>
  __device__ __forceinline__ void SetLimits(const Params& params,
                                            const WorkTile& unit,
                                            const Queries& queries) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      limits_[r] = min(queries.limits[rows_[r].query], unit.item.kv_end);
    }
    min_limit_ = __reduce_min_sync(~0u, min(limits_[0], limits_[1]));
    if constexpr (kHasOptions) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        begins_[r] =
            WindowBegin(params, unit.item.first_query + rows_[r].query);
      }
      max_begin_ = __reduce_max_sync(~0u, max(begins_[0], begins_[1]));
    }
  }

  // Attends to kSpans spans of positions, `stride` bytes apart in shared memory
  // at `spans`. The first begins with `position`.
  template <int kSpans, int kStride, bool kHasOptions>
  __device__ __forceinline__ void Attend(const Params& params, uint32_t spans,
                                         int position) {
    float scores[2 * kSpans][4] = {};
    Score<kSpans, kStride>(spans, scores);
    WeighScores<kSpans, kHasOptions>(params, position, scores);
    AddValues<kSpans, kStride>(spans + Ring<kHeadDim>::kKeysBytes, scores);
  }

  // As Attend, for all four warps with their rows and a tile of positions.
  template <bool kHasOptions>
  __device__ __forceinline__ void AttendToTile(const Params& params,
                                               uint32_t tile, int position) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    float scores[2 * kWarps][4] = {};
    WgmmaFence();
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; ++k) {
      WgmmaM64N64K16<T, /*kTransposed=*/false>(
          q_[k], WgmmaDescriptor(tile + k / 4 * kTileHalfBytes + k % 4 * 32),
          scores);
    }
    WgmmaCommitGroup();
    WgmmaWaitGroup();
    WeighScores<kWarps, kHasOptions>(params, position, scores);
    uint32_t weights[kWarps][4];
#pragma unroll
    for (int span = 0; span < kWarps; ++span) {
      PackWeights(scores[2 * span], scores[2 * span + 1], weights[span]);
    }
    const uint32_t values = tile + kWarps * Ring<kHeadDim>::kKeysBytes;
    WgmmaFence();
#pragma unroll
    for (int span = 0; span < kWarps; ++span) {
      const uint64_t b = WgmmaDescriptor(values + span * kKvTile * 128);
      WgmmaM64N64K16<T, /*kTransposed=*/true>(weights[span], b, sums_);
      if constexpr (kHeadDim == 128) {
        WgmmaM64N64K16<T, /*kTransposed=*/true, /*kFirst=*/8>(
            weights[span], b + kTileHalfBytes / 16, sums_);
      }
    }
    WgmmaCommitGroup();
    WgmmaWaitGroup();
#endif
  }

  // Attends to a span of `query` only, to positions below `limit`. Attend must
  // not be called afterwards.
  template <bool kHasOptions>
  __device__ __forceinline__ void AttendAlone(const Params& params,
                                              uint32_t span, int position,
                                              int query, int limit) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      limits_[r] = rows_[r].query == query ? limit : 0;
    }
    min_limit_ = 0;
    float scores[2][4] = {};
    Score<1, 0>(span, scores);
    WeighScores<1, kHasOptions>(params, position, scores);
    AddValuesOfOwner(span + Ring<kHeadDim>::kKeysBytes, scores);
  }

  // Call after the last Attend.
  __device__ __forceinline__ void SumOverLanes() {
#pragma unroll
    for (int r = 0; r < 2; ++r) sum_[r] = LaneGroupSum<4>(sum_[r]);
  }

  // Stores rows of the work tile, after SumOverLanes.
  __device__ __forceinline__ void Store(const Params& params,
                                        const WorkTile& unit,
                                        const Queries& queries,
                                        int first_row) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (first_row + lane / 4 + 8 * r >= unit.num_rows) continue;
      const RowTarget<T> target = TargetOf<T>(params, unit, queries, rows_[r]);
      if (target.result != nullptr) {
        const float scale = 1.0f / sum_[r];
#pragma unroll
        for (int n = 0; n < kHeadDim / 8; ++n) {
          StoreTwo({sums_[n][2 * r] * scale, sums_[n][2 * r + 1] * scale},
                   target.result + 8 * n + 2 * (lane % 4));
        }
        continue;
      }
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n) {
        StoreTwo({sums_[n][2 * r], sums_[n][2 * r + 1]},
                 target.partial + 8 * n + 2 * (lane % 4));
      }
      if (lane % 4 == 0) {
        StoreTwo({maximum_[r], sum_[r]}, target.partial + kHeadDim);
      }
    }
  }

  // As Store, but to shared memory: sums [16, kHeadDim], their groups of 8
  // floats swizzled, and weights [16].
  __device__ __forceinline__ void StoreShared(float* sums,
                                              float2* weights) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = lane / 4 + 8 * r;
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n) {
        StoreTwo({sums_[n][2 * r], sums_[n][2 * r + 1]},
                 sums + row * kHeadDim + 8 * (n ^ (row & 7)) + 2 * (lane % 4));
      }
      if (lane % 4 == 0) weights[row] = {maximum_[r], sum_[r]};
    }
  }

 private:
  // Turns scores of spans from `position` on into weights.
  template <int kSpans, bool kHasOptions>
  __device__ __forceinline__ void WeighScores(const Params& params,
                                              int position,
                                              float (&scores)[2 * kSpans][4]) {
    float scale = params.score_scale;
    if constexpr (kHasOptions) {
      if (params.soft_cap > 0) {
        Cap<kSpans>(params, scores);
        scale = 1;
      }
      if (position < max_begin_) MaskBefore<kSpans>(position, scores);
    }
    if (position + kKvTile * kSpans > min_limit_) {
      Mask<kSpans>(position, scores);
    }
    UpdateSoftmax<kSpans>(scale, scores);
  }

  template <int kSpans, int kStride>
  __device__ __forceinline__ void Score(uint32_t spans,
                                        float (&scores)[2 * kSpans][4]) const {
    const int lane = threadIdx.x % 32;
    // Matrices: keys 0..7 and 8..15 of a span, each of 8 dimensions and 8 more.
    const int row = lane % 8 + lane / 16 * 8;
    const uint32_t keys = spans + row * Ring<kHeadDim>::kRowBytes;
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; ++k) {
      const int at = Swizzle(row, 2 * k + lane / 8 % 2);
#pragma unroll
      for (int s = 0; s < kSpans; ++s) {
        uint32_t b[4];
        LdMatrixX4(b, keys + s * kStride + at);
        MmaM16N8K16<T>(scores[2 * s], q_[k], b[0], b[1]);
        MmaM16N8K16<T>(scores[2 * s + 1], q_[k], b[2], b[3]);
      }
    }
  }

  template <int kSpans>
  __device__ __forceinline__ void Mask(int position,
                                       float (&scores)[2 * kSpans][4]) const {
    const int first = position + 2 * (threadIdx.x % 4);
#pragma unroll
    for (int t = 0; t < 2 * kSpans; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (first + 8 * t + i % 2 >= limits_[i / 2]) scores[t][i] = -INFINITY;
      }
    }
  }

  // Masks the positions before a row's window.
  template <int kSpans>
  __device__ __forceinline__ void MaskBefore(
      int position, float (&scores)[2 * kSpans][4]) const {
    const int first = position + 2 * (threadIdx.x % 4);
#pragma unroll
    for (int t = 0; t < 2 * kSpans; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (first + 8 * t + i % 2 < begins_[i / 2]) scores[t][i] = -INFINITY;
      }
    }
  }

  // Turns scores into logarithms to base 2 of capped ones. The tanh, from an
  // approximate power and quotient, has an error of about 2^-22: with a cap of
  // 50 weights have a relative error of 1e-5, before they are rounded to 16
  // bits.
  template <int kSpans>
  __device__ __forceinline__ void Cap(const Params& params,
                                      float (&scores)[2 * kSpans][4]) const {
    const float to_power = 2 * 1.44269504f * params.score_scale;
#pragma unroll
    for (int t = 0; t < 2 * kSpans; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float power = Exp2(scores[t][i] * to_power);
        scores[t][i] = params.soft_cap * (1 - __fdividef(2.0f, 1.0f + power));
      }
    }
  }

  // Turns scores into weights.
  template <int kSpans>
  __device__ __forceinline__ void UpdateSoftmax(
      float scale, float (&scores)[2 * kSpans][4]) {
    float factors[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float score = -INFINITY;
#pragma unroll
      for (int t = 0; t < 2 * kSpans; ++t) {
        score = fmaxf(score, fmaxf(scores[t][2 * r], scores[t][2 * r + 1]));
      }
      const float maximum = fmaxf(maximum_[r], LaneGroupMax<4>(score) * scale);
      const float shift = Shift(maximum);
      factors[r] = Exp2(maximum_[r] - shift);
      maximum_[r] = maximum;
      sum_[r] *= factors[r];
#pragma unroll
      for (int t = 0; t < 2 * kSpans; ++t) {
#pragma unroll
        for (int i = 2 * r; i < 2 * r + 2; ++i) {
          scores[t][i] = Exp2(fmaf(scores[t][i], scale, -shift));
          sum_[r] += scores[t][i];
        }
      }
    }
    // Maxima seldom change after the first positions.
    if (__any_sync(~0u, factors[0] != 1.0f || factors[1] != 1.0f)) {
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums_[n][i] *= factors[i / 2];
      }
    }
  }

  // Packs the weights of a span as a first operand.
  __device__ static __forceinline__ void PackWeights(const float (&low)[4],
                                                     const float (&high)[4],
                                                     uint32_t (&a)[4]) {
    a[0] = Pack<T>(low[0], low[1]);
    a[1] = Pack<T>(low[2], low[3]);
    a[2] = Pack<T>(high[0], high[1]);
    a[3] = Pack<T>(high[2], high[3]);
  }

  template <int kSpans, int kStride>
  __device__ __forceinline__ void AddValues(
      uint32_t spans, const float (&weights)[2 * kSpans][4]) {
    const int lane = threadIdx.x % 32;
    // Matrices: values 0..7 and 8..15 of a span, of 8 dimensions and 8 more.
    const int row = lane % 16;
    const uint32_t values = spans + row * Ring<kHeadDim>::kRowBytes;
#pragma unroll
    for (int s = 0; s < kSpans; ++s) {
      uint32_t a[4];
      PackWeights(weights[2 * s], weights[2 * s + 1], a);
#pragma unroll
      for (int n = 0; n < kHeadDim / 16; ++n) {
        uint32_t b[4];
        LdMatrixX4Trans(b,
                        values + s * kStride + Swizzle(row, 2 * n + lane / 16));
        MmaM16N8K16<T>(sums_[2 * n], a, b[0], b[1]);
        MmaM16N8K16<T>(sums_[2 * n + 1], a, b[2], b[3]);
      }
    }
  }

  // Adds the values of a span to the rows that see some of it. For rows of
  // other queries a weight of 0 times a NaN would be NaN.
  __device__ __forceinline__ void AddValuesOfOwner(
      uint32_t values, const float (&weights)[2][4]) {
    const int lane = threadIdx.x % 32;
    const int row = lane % 16;
    uint32_t a[4];
    PackWeights(weights[0], weights[1], a);
#pragma unroll
    for (int n = 0; n < kHeadDim / 16; ++n) {
      uint32_t b[4];
      LdMatrixX4Trans(b, values + row * Ring<kHeadDim>::kRowBytes +
                             Swizzle(row, 2 * n + lane / 16));
      float added[2][4] = {};
      MmaM16N8K16<T>(added[0], a, b[0], b[1]);
      MmaM16N8K16<T>(added[1], a, b[2], b[3]);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (limits_[i / 2] == 0) continue;
        sums_[2 * n][i] += added[0][i];
        sums_[2 * n + 1][i] += added[1][i];
      }
    }
  }

  Row rows_[2];
  uint32_t q_[kHeadDim / 16][4];
  float sums_[kHeadDim / 8][4] = {};
  float maximum_[2] = {-INFINITY, -INFINITY};
  float sum_[2] = {0, 0};  // this lane's part
  int limits_[2];
  int min_limit_;
  int begins_[2];  // window starts, with kHasOptions
  int max_begin_;
};

}  // namespace espalier::cuda_attention
