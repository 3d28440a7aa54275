// One block per query. It reads the row once, tile by tile as selection and
// sampling do, so that log_sum has the same bits, counts the logits above the
// query's, and adds the tiles in order.
//
// With hundreds of queries bound by reading. A few take the time in which one
// multiprocessor reads a row from L2.
#include "base/cuda_launch.cuh"
#include "base/status.h"
#include "kernels/logits/cuda_row_pieces.cuh"
#include "kernels/logprobs/cuda_logprobs.h"

namespace espalier {
namespace {

using cuda_logits::kAllLanes;
using cuda_logits::kWarpSize;
using cuda_logits::LanePiece;
using cuda_logits::LogSum;
using cuda_logits::MinusInf;
using cuda_logits::RowLogits;
using cuda_logits::RowPieces;

struct LogProbsPolicy {
  // Pieces of a row in flight at once; two blocks share a multiprocessor.
  static constexpr int kWarps = 16;
  static constexpr int kThreads = kWarps * kWarpSize;
  static constexpr int kMinBlocks = 2;
};

// Tiles of the longest row are summed in batches of this size.
constexpr int kTilesAtOnce = cuda_logits::kBatchStride;

struct LogProbsShared {
  float maxima[kTilesAtOnce];
  float sums[kTilesAtOnce];
  int counts[LogProbsPolicy::kWarps];
};

// One warp: returns a tile's sum of exponentials, and adds the number of logits
// above `logit` to `count`.
template <typename T>
__device__ LogSum ReadTile(const RowPieces<T>& row, int tile, float logit,
                           int& count) {
  const LanePiece<T> pieces[2] = {row.Load(2 * tile), row.Load(2 * tile + 1)};
  LogSum lane;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float x[16];
    Unpack(pieces[half], x);
    AddLogits(x, lane);
#pragma unroll
    for (int i = 0; i < 16; ++i) count += x[i] > logit;
  }
  return WarpLogSum(lane);
}

template <typename T>
__global__ __launch_bounds__(
    LogProbsPolicy::kThreads,
    LogProbsPolicy::kMinBlocks) void ScoreTokens(const __grid_constant__
                                                     CudaLogprobsInputs in,
                                                 CudaTokenScore* scores) {
  __shared__ LogProbsShared shared;
  LaunchDependents();
  GridDependencyWait();
  if (static_cast<int>(blockIdx.x) >= *in.num_logprob_queries) return;
  const CudaLogprobQuery asked = in.asked[blockIdx.x];
  const int size = asked.vocab_end > 0 ? asked.vocab_end : in.vocab_size;
  const RowPieces<T> row(
      static_cast<const T*>(in.logits) + size_t(asked.row) * in.vocab_size,
      size);
  const float logit = RowLogits<T>(row.logits(), size).Logit(asked.token);
  const int num_tiles = cuda_logits::NumTiles(size);
  const int warp = threadIdx.x / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  int count = 0;
  const auto load = [](int tile) -> LogSum {
    return {shared.maxima[tile], shared.sums[tile]};
  };
  LogSum total;
  for (int first = 0; first < num_tiles; first += kTilesAtOnce) {
    const int end = min(num_tiles, first + kTilesAtOnce);
    for (int tile = first + warp; tile < end; tile += LogProbsPolicy::kWarps) {
      const LogSum sum = ReadTile(row, tile, logit, count);
      if (lane != 0) continue;
      shared.maxima[tile - first] = sum.max;
      shared.sums[tile - first] = sum.sum;
    }
    __syncthreads();
    if (warp == 0) AddTiles(lane, end - first, load, total);
    __syncthreads();
  }
  count = __reduce_add_sync(kAllLanes, count);
  if (lane == 0) shared.counts[warp] = count;
  __syncthreads();
  if (warp != 0) return;
  const auto [max, sum] = WarpLogSum(total);
  const float log_sum = logf(sum);
  if (lane != 0) return;
  count = 0;
  for (int w = 0; w < LogProbsPolicy::kWarps; ++w) count += shared.counts[w];
  CudaTokenScore score = {MinusInf(), 1 + count};
  if (max > MinusInf()) {
    score.log_prob =
        __fsub_rn(logit == max ? 0.0f : __fsub_rn(logit, max), log_sum);
  }
  scores[blockIdx.x] = score;
}

}  // namespace

absl::Status CudaLogprobs(const CudaLogprobsInputs& in, CudaTokenScore* scores,
                          cudaStream_t stream) {
  if (in.dtype != DType::kFloat32 && in.dtype != DType::kBFloat16) {
    return InvalidArgument("logits are neither float32 nor bfloat16");
  }
  if (in.vocab_size < 1 || in.max_asked < 1) {
    return InvalidArgument("cannot score up to ", in.max_asked,
                           " tokens of rows of ", in.vocab_size);
  }
  const LaunchConfig shape = {.grid = dim3(in.max_asked),
                              .block = dim3(LogProbsPolicy::kThreads)};
  return in.dtype == DType::kFloat32
             ? Launch(ScoreTokens<float>, shape, stream, in, scores)
             : Launch(ScoreTokens<uint16_t>, shape, stream, in, scores);
}

}  // namespace espalier
