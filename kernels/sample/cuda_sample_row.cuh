// What the kernels of sampling share: what is known of a tile once it has
// been read, how a row is edited, and what a logit weighs. Rows are cut into
// tiles and quarters as selection cuts them (cuda_select_row.cuh).
//
// All that decides a draw goes by how far a logit is below the row's best
// edited one: distance = best - logit, one float32 rounding, whose bits are in
// its order. A token's weight is exp(-distance / temperature) in units of
// 2^-40, an integer, so that sums of weights are exact and no order of
// summation, hence no spread of the work, changes a bit.
#pragma once

#include "kernels/sample/cuda_sample.h"
#include "kernels/select/cuda_select_row.cuh"
#include "kernels/select/cuda_select_tiles.cuh"

namespace espalier::cuda_sample {

using cuda_select::kAllLanes;
using cuda_select::kQuarters;
using cuda_select::kTileSize;
using cuda_select::kWarpSize;
using cuda_select::LaneLogits;
using cuda_select::MinusInf;
using cuda_select::RowLogits;

// Of a tile of a row before edits.
struct RawTile {
  float max;
  float sum;  // of exp(logit - max); NaN if a logit is
};

struct Params {
  CudaSampleInputs in;
  Candidate* candidates;
  // [num_rows, tiles]
  RawTile* raw;
  // Of quarters, after edits: the maximum, and the sum of what tokens weigh in
  // units of what it does.
  float4* maxima;
  float4* sums;
  int* first_edits;  // of tiles; of rows with edits alone
  int num_tiles;     // of a row
};

// log2(e) / temperature, the factor of exponents. Finite, so that a distance of
// 0 weighs 1 at any temperature.
__device__ inline float ExponentScale(float temperature) {
  return fminf(1.44269504f / temperature, 3.40282347e38f);
}

// 2^x to 2^-22 for x <= 0; tiny results are 0.
__device__ inline float FastExp2(float x) {
  float e;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x));
  return e;
}

// A row's edits.
struct EditList {
  const TokenEdit* edits = nullptr;
  CudaRowEdits row = {};

  EditList() = default;
  __device__ EditList(const CudaSampleInputs& in, int row_idx)
      : edits(in.edits) {
    if (in.row_edits != nullptr) row = in.row_edits[row_idx];
  }
  __device__ bool any() const { return row.end > row.begin || row.only_edited; }

  // One thread: a token's score after edits.
  __device__ float Edited(int token, float score) const {
    int begin = row.begin;
    int end = row.end;
    while (begin < end) {
      const int middle = (begin + end) / 2;
      if (edits[middle].token < token) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    if (begin == row.end || edits[begin].token != token) {
      return row.only_edited ? MinusInf() : score;
    }
    const TokenEdit& edit = edits[begin];
    return edit.banned ? MinusInf()
                       : EditedScore(score, edit, row.repetition_penalty);
  }
};

// A run of a row's edits, one a lane, that a warp takes in order.
class EditWindow {
 public:
  EditWindow() = default;
  // From edit `first` on.
  __device__ EditWindow(const EditList& list, int first) : list_(list) {
    Load(first);
    next_ = first;
  }

  // From the first edit of `token` or a later one on, in few dependent loads.
  __device__ static EditWindow At(const EditList& list, int token) {
    const int lane = threadIdx.x % kWarpSize;
    int begin = list.row.begin;
    int end = list.row.end;
    // As many as there are lanes are too many: all may be of tokens below.
    while (end - begin >= kWarpSize) {
      const int step = (end - begin + kWarpSize - 1) / kWarpSize;
      const int probe = begin + lane * step;
      const bool before = probe < end && list.edits[probe].token < token;
      const int count = __popc(__ballot_sync(kAllLanes, before));
      if (count == 0) break;
      end = min(end, begin + count * step);
      begin += (count - 1) * step + 1;
    }
    EditWindow window(list, begin);
    window.next_ += __popc(__ballot_sync(kAllLanes, window.own_.token < token));
    return window;
  }

  // The edit that is next.
  __device__ int next() const { return next_; }

  // Whether an edit is to come of a token below `end`.
  __device__ bool Has(int end) const {
    return __any_sync(kAllLanes, IsNext() && own_.token < end);
  }

  // Goes past the edits of tokens below `end`.
  __device__ void SkipTo(int end) {
    for (;;) {
      next_ += __popc(__ballot_sync(kAllLanes, IsNext() && own_.token < end));
      if (next_ < base_ + kWarpSize || next_ >= list_.row.end) return;
      Load(next_);
    }
  }

  // Edits the lanes' values, whose tokens are token_of(i), as far as the next
  // edits are of tokens below `end`.
  template <int kSize, typename TokenOf>
  __device__ void Apply(int end, const TokenOf& token_of,
                        float (&values)[kSize]) {
    unsigned edited = 0;
    for (;;) {
      const unsigned wanted =
          __ballot_sync(kAllLanes, IsNext() && own_.token < end);
      next_ += __popc(wanted);
#pragma unroll 1
      for (unsigned left = wanted; left != 0; left &= left - 1) {
        ApplyOne(__ffs(left) - 1, token_of, values, edited);
      }
      if (next_ < base_ + kWarpSize || next_ >= list_.row.end) break;
      Load(next_);
    }
    if (!list_.row.only_edited) return;
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      if ((edited >> i & 1) == 0) values[i] = MinusInf();
    }
  }

 private:
  // Whether this lane's edit is still to come.
  __device__ bool IsNext() const {
    return base_ + static_cast<int>(threadIdx.x) % kWarpSize >= next_;
  }
  __device__ void Load(int base) {
    base_ = base;
    const int own = base + static_cast<int>(threadIdx.x) % kWarpSize;
    if (own < list_.row.end) {
      own_ = list_.edits[own];
    } else {
      own_.token = 0x7FFFFFFF;
    }
  }

  template <int kSize, typename TokenOf>
  __device__ void ApplyOne(int lane, const TokenOf& token_of,
                           float (&values)[kSize], unsigned& edited) const {
    TokenEdit edit;
    edit.token = __shfl_sync(kAllLanes, own_.token, lane);
    edit.banned = __shfl_sync(kAllLanes, int{own_.banned}, lane);
    edit.repeated = __shfl_sync(kAllLanes, int{own_.repeated}, lane);
    edit.bias = __shfl_sync(kAllLanes, own_.bias, lane);
    edit.penalty = __shfl_sync(kAllLanes, own_.penalty, lane);
    float value = 0;
    unsigned at = 0;
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      if (token_of(i) != edit.token) continue;
      value = values[i];
      at = 1u << i;
    }
    if (at == 0) return;
    value = edit.banned
                ? MinusInf()
                : EditedScore(value, edit, list_.row.repetition_penalty);
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      if (at == 1u << i) values[i] = value;
    }
    edited |= at;
  }

  EditList list_;
  TokenEdit own_;
  int base_;  // the edit of lane 0
  int next_;
};

// A row before edits.
struct RawRow {
  float max;
  float log_sum;

  __device__ float LogProb(float logit) const {
    if (!(logit > MinusInf())) return MinusInf();
    const float difference = logit == max ? 0.0f : __fsub_rn(logit, max);
    return __fsub_rn(difference, log_sum);
  }
};

// A warp: that from its tiles, in the order of selection (SumTiles), hence to
// the bit.
__device__ inline RawRow SumRawTiles(const RawTile* tiles, int num_tiles) {
  using cuda_select::kBatch;
  using cuda_select::LogSum;
  LogSum total;
  for (int first = static_cast<int>(threadIdx.x) % kWarpSize; first < num_tiles;
       first += cuda_select::kBatchStride) {
    LogSum of[kBatch];
    float top = total.max;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int tile = first + i * kWarpSize;
      const RawTile raw = tiles[min(tile, num_tiles - 1)];
      if (tile < num_tiles) of[i] = {raw.max, raw.sum};
      top = fmaxf(top, of[i].max);
    }
    float sum = total.Scaled(top);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) sum += of[i].Scaled(top);
    total = {top, sum};
  }
  const float top = cuda_select::MaxOverWarp(total.max);
  return {top, logf(cuda_select::SumOverWarp(total.Scaled(top)))};
}

// What filters leave of a row.
struct RowCut {
  // kNoToken or kNotANumber if that is all there is to say of the row; in a
  // greedy row its one token.
  TokenId token = 0;
  bool is_greedy = false;
  float max = 0;    // of edited scores
  float scale = 0;  // of exponents
  // Distances up to `cut` stay and, if is_typical, only those whose exponent is
  // as near to the mean.
  uint32_t cut = 0;
  bool is_typical = false;
  uint32_t typical_cut = 0;
  float mean = 0;
  float log_total = 0;  // of what stays, relative to the best
};

// A sum of 2^((x - max) * scale) over what a lane has, -inf for nothing.
struct WeightSum {
  float max = -__builtin_inff();
  float sum = 0;

  __device__ float Scaled(float top, float scale) const {
    return max == top ? sum
                      : __fmul_rn(sum, FastExp2(__fmul_rn(max - top, scale)));
  }
};

// Where an infinite maximum needs care.
template <int kSize>
__device__ float CarefulSumOfWeights(const float (&x)[kSize], float max,
                                     float scale) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    const float w = x[i] == max ? 1.0f : FastExp2(__fmul_rn(x[i] - max, scale));
    sum += x[i] > MinusInf() ? w : 0.0f;
  }
  return sum;
}

// Finds what is left of each row: after ReadRows, of float32 rows without
// edits (cuda_sample_draw.cu).
absl::Status FindRowCuts(const Params& params, RowCut* cuts,
                         cudaStream_t stream);

// Lays the parts of scratch memory out from `base`; returns the bytes.
size_t LayOutSample(const CudaSampleInputs& inputs, char* base, Params& params);

// Errors as CudaSample's.
absl::Status CheckShapes(const CudaSampleInputs& inputs);

// Reads all rows that are drawn from and leaves what tiles and quarters come to
// (cuda_sample_read.cu).
absl::Status ReadRows(const Params& params, const CudaDevice& device,
                      cudaStream_t stream);

// Draws (cuda_sample_draw.cu).
absl::Status DrawTokens(const Params& params, const CudaDevice& device,
                        cudaStream_t stream);

}  // namespace espalier::cuda_sample
