// The one pass over the logits in selection: for every tile the maxima of its
// quarters and its sum of exponentials (cuda_select.cu).
#include "kernels/logits/cuda_read_tiles.cuh"
#include "kernels/select/cuda_select_steps.h"
#include "kernels/select/cuda_select_tiles.cuh"

namespace espalier::cuda_select {
namespace {

using cuda_logits::LanePiece;
using cuda_logits::ReadPolicy;
using cuda_logits::RowPieces;
using cuda_logits::WarpTiles;

// Adds a lane's logits of a piece to its sum of the tile.
template <typename T>
__device__ void AddPiece(const LanePiece<T>& piece, LogSum& lane) {
  float x[16];
  Unpack(piece, x);
  AddLogits(x, lane);
}

// Reduces the lanes' sums.
__device__ inline void FinishTile(const LogSum& own, float* maxima,
                                  float* sum) {
  constexpr int kLanes = kWarpSize / kQuarters;  // per quarter
  const int lane = threadIdx.x % kWarpSize;
  float max = MaxOverQuarter(own.max);
  if (lane % kLanes == 0) maxima[lane / kLanes] = max;
#pragma unroll
  for (int distance = kLanes; distance < kWarpSize; distance *= 2) {
    max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, distance));
  }
  const float total = WarpSum(own.Scaled(max));
  if (lane == 0) *sum = total;
}

template <typename T>
__global__ __launch_bounds__(
    ReadPolicy::kMaxThreads,
    ReadPolicy::kMinBlocks) void ReadTiles(const __grid_constant__ Params p,
                                           int tiles_per_warp) {
  LaunchDependents();
  const int row = blockIdx.y;
  const int group = p.in.row_groups[row];
  const float cum = p.in.cum_log_probs[row];
  GridDependencyWait();  // for logits; the rest was there before
  // Tests both at once, so that their latencies overlap.
  if ((group < 0) | !(cum > MinusInf())) return;
  const WarpTiles tiles(p.tiles, tiles_per_warp);
  if (!tiles.any()) return;
  const RowPieces<T> logits(p.in.logits, row, p.in.vocab_size);
  float* const maxima = p.scratch.maxima + size_t(row) * p.tiles * kQuarters;
  float* const sums = p.scratch.sums + size_t(row) * p.tiles;
  const LanePiece<T> first = logits.Load(2 * tiles.begin);
  // Read while that load is in flight, which is wasted only if CudaSample
  // chooses for the group.
  if (p.in.groups[group].num_candidates < 1) return;
  LogSum lane;
  const auto add = [&](const LanePiece<T>& piece, int tile, int second) {
    AddPiece(piece, lane);
    if (!second) return;
    FinishTile(lane, maxima + tile * kQuarters, sums + tile);
    lane = {};
  };
  ForEachPiece(logits, tiles, first, add);
}

template <typename T>
absl::Status LaunchRead(const Params& p, const CudaDevice& device,
                        cudaStream_t stream) {
  const auto [launch, tiles_per_warp] =
      cuda_logits::ShapeOfReading(p.in.num_rows, p.tiles, device);
  return Launch(ReadTiles<T>, launch, stream, p, tiles_per_warp);
}

}  // namespace

absl::Status ReadAllTiles(const Params& p, const CudaDevice& device,
                          cudaStream_t stream) {
  return p.in.dtype == DType::kFloat32
             ? LaunchRead<float>(p, device, stream)
             : LaunchRead<uint16_t>(p, device, stream);
}

}  // namespace espalier::cuda_select
