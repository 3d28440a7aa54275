// Definitions that the sampling kernels share: the statistics of a tile, and
// the weight of a logit. Rows are divided into tiles and quarters as for
// selection (kernels/logits/cuda_row_logits.cuh).
//
// All decisions of a draw depend on the distance of a logit from the row's
// highest edited one: distance = best - logit, one float32 rounding, whose bits
// have its order. A token's weight is exp(-distance / temperature) in units of
// 2^-40, an integer. Sums of weights are therefore exact, and no order of
// summation, hence no spread of the work, changes a bit.
#pragma once

#include "base/cuda_launch.cuh"
#include "kernels/logits/cuda_row_logits.cuh"
#include "kernels/logits/cuda_row_tiles.cuh"
#include "kernels/sample/cuda_sample.h"
#include "kernels/sample/sample_filters.h"

namespace espalier::cuda_sample {

using cuda_logits::kAllLanes;
using cuda_logits::kQuarters;
using cuda_logits::kTileSize;
using cuda_logits::kWarpSize;
using cuda_logits::LaneLogits;
using cuda_logits::MinusInf;
using cuda_logits::RowLogits;

__device__ inline int Lane() { return threadIdx.x % kWarpSize; }
__device__ inline int Warp() { return threadIdx.x / kWarpSize; }

// Statistics of a tile before edits.
struct RawTile {
  float max;
  float sum;  // sum of exp(logit - max); NaN if a logit is
};

struct Params {
  CudaSampleInputs in;
  Candidate* candidates;
  // [num_rows, tiles]
  RawTile* raw;
  // Per tile, for its quarters, after edits: the maximum, and the sum of
  // weights relative to that of the maximum, if required (NeedsWeights).
  float4* maxima;
  float4* sums;
  int* first_edits;  // per tile, for rows with edits only
  int num_tiles;     // per row
  // [num_rows]  as in CudaVerifyInputs; null: all rows are in in.logits.
  const uint64_t* row_addresses;

  template <typename T>
  __device__ const T* LogitsOf(int row) const {
    const uint64_t own = row_addresses == nullptr ? 0 : row_addresses[row];
    if (own != 0) return reinterpret_cast<const T*>(own);
    return static_cast<const T*>(in.logits) + size_t(row) * in.vocab_size;
  }
  // Returns the place of the row's copy, or null.
  __device__ float* CopyOfRow(int row) const {
    const int copy = in.copies == nullptr ? -1 : in.copied_rows[row];
    return copy < 0 ? nullptr : in.copies + size_t(copy) * in.vocab_size;
  }
};

// Returns log2(e) / temperature, the factor of exponents. Finite, so that a
// distance of 0 has weight 1 at any temperature.
__device__ inline float ExponentScale(float temperature) {
  return fminf(1.44269504f / temperature, 3.40282347e38f);
}

// True if a draw reads the weights of tiles. Else it reads tokens only.
__device__ inline bool NeedsWeights(const SamplingParams& params,
                                    int vocab_size) {
  return params.temperature != 0.0f && !KeepsFew(params, vocab_size);
}

// A distance beyond every cut: that of banned tokens and of -inf.
constexpr uint32_t kNever = 0xFFFFFFFFu;
constexpr uint32_t kAll = kNever - 1;  // a cut that keeps all other tokens

// The options of a draw, computed before its row is complete.
struct RowOptions {
  SamplingParams params;
  float scale = 0;            // exponent factor
  uint32_t min_p_cut = kAll;  // the distance of min_p

  RowOptions() = default;
  __device__ explicit RowOptions(const SamplingParams& of)
      : params(of), scale(ExponentScale(of.temperature)) {
    if (of.min_p > 0.0f) {
      min_p_cut = __float_as_uint(fabsf(of.temperature * logf(of.min_p)));
    }
  }
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

// One warp: returns the row's statistics from its tiles, in the order of
// selection (SumTiles), hence the same bits.
__device__ inline RawRow SumRawTiles(const RawTile* tiles, int num_tiles) {
  cuda_logits::LogSum lane;
  for (int first = Lane(); first < num_tiles;
       first += cuda_logits::kBatchStride) {
    const auto load = [tiles](int tile) -> cuda_logits::LogSum {
      return {tiles[tile].max, tiles[tile].sum};
    };
    cuda_logits::AddTiles(first, num_tiles, load, lane);
  }
  const cuda_logits::LogSum row = WarpLogSum(lane);
  return {row.max, logf(row.sum)};
}

// The tokens of a row that its filters keep.
struct RowCut {
  // kNoToken or kNotANumber if no token can be sampled; the sampled token if
  // the row is greedy.
  TokenId token = 0;
  bool is_greedy = false;
  float max = 0;    // highest edited score
  float scale = 0;  // exponent factor
  // Distances up to `cut` stay and, if is_typical, only those whose exponent is
  // close enough to the mean.
  uint32_t cut = 0;
  bool is_typical = false;
  uint32_t typical_cut = 0;
  float mean = 0;
  float log_total = 0;  // log mass of the kept tokens, relative to the best
};

// A sum of 2^((x - max) * scale) over a lane's values; max is -inf if it has
// none.
struct WeightSum {
  float max = -__builtin_inff();
  float sum = 0;

  __device__ float Scaled(float top, float scale) const {
    return max == top ? sum : __fmul_rn(sum, Exp2(__fmul_rn(max - top, scale)));
  }
};

// Handles an infinite maximum.
template <int kSize>
__device__ float SumOfWeightsNanSafe(const float (&x)[kSize], float max,
                                     float scale) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    const float w = x[i] == max ? 1.0f : Exp2(__fmul_rn(x[i] - max, scale));
    sum += x[i] > MinusInf() ? w : 0.0f;
  }
  return sum;
}

// Finds the cut of each row: after ReadRows, of float32 rows without edits
// (cuda_sample_draw.cu).
absl::Status FindRowCuts(const Params& params, RowCut* cuts,
                         cudaStream_t stream);

// Returns params with the arrays of the scratch memory at `base`.
Params ParamsAt(const CudaSampleInputs& inputs, const CudaSampleLayout& layout,
                void* base);

// Errors: as CudaSample.
absl::Status CheckShapes(const CudaSampleInputs& inputs);

// Reads rows and draws in one launch, for few draws (cuda_sample_few.cu).
// Returns false and enqueues nothing if that is not possible or not profitable.
absl::StatusOr<bool> DrawFewTokens(const Params& params,
                                   const CudaDevice& device,
                                   cudaStream_t stream);

// Reads all rows with draws and writes the statistics of tiles and quarters
// (cuda_sample_read.cu).
absl::Status ReadRows(const Params& params, const CudaDevice& device,
                      cudaStream_t stream);

// Samples the tokens (cuda_sample_draw.cu).
absl::Status DrawTokens(const Params& params, const CudaDevice& device,
                        cudaStream_t stream);

}  // namespace espalier::cuda_sample
