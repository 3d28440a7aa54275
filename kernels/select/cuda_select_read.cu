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

// Maxima of a tile of which a mask bans tokens.
template <bool kMasks>
class MaskedTile : public RowMask<kMasks> {
 public:
  // Adds a piece of the row.
  template <typename T>
  __device__ void Add(const LanePiece<T>& piece, int index) {
    float x[16];
    Unpack(piece, x);
#pragma unroll
    for (int i = 0; i < 16; i += 4) {  // neighbours, in one word
      const int token = cuda_logits::PieceToken<T>(index, i);
      const uint32_t bits = this->FourAt(token);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if ((bits >> j & 1) != 0) max_ = fmaxf(max_, x[i + j]);
      }
    }
  }
  // Replaces the maxima of a finished tile, and keeps theirs in `top`.
  __device__ void Finish(float* maxima, float raw_max, float* top) {
    constexpr int kLanes = kWarpSize / kQuarters;  // per quarter
    const int lane = threadIdx.x % kWarpSize;
    const float max = MaxOverQuarter(max_);
    if (lane % kLanes == 0) maxima[lane / kLanes] = max;
    const float all = WarpMax(raw_max);
    if (lane == 0) *top = all;
    max_ = MinusInf();
  }

 private:
  float max_ = -__builtin_inff();
};

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
  using Logit = LogitOf<T>;
  const RowPieces<Logit> logits(p.in.logits, row, p.in.vocab_size);
  float* const maxima = p.scratch.maxima + size_t(row) * p.tiles * kQuarters;
  float* const sums = p.scratch.sums + size_t(row) * p.tiles;
  const LanePiece<Logit> first = logits.Load(2 * tiles.begin);
  // Read while that load is in flight, which is wasted only if CudaSample
  // chooses for the group.
  if (p.in.groups[group].num_candidates < 1) return;
  LogSum lane;
  constexpr bool kMasks = kIsMasked<T>;
  const int mask = kMasks ? p.in.row_edits[row].mask : -1;
  MaskedTile<kMasks> masked;
  masked.SetMask(p.in.masks, mask, p.in.vocab_size);
  const auto add = [&](const LanePiece<Logit>& piece, int tile, int second) {
    AddPiece(piece, lane);
    if (masked.has_mask()) masked.Add(piece, 2 * tile + second);
    if (!second) return;
    FinishTile(lane, maxima + tile * kQuarters, sums + tile);
    if (masked.has_mask()) {
      masked.Finish(maxima + tile * kQuarters, lane.max,
                    p.scratch.tops + size_t(row) * p.tiles + tile);
    }
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
  return ByRowType(
      p.in, [&]<typename T>() { return LaunchRead<T>(p, device, stream); });
}

}  // namespace espalier::cuda_select
