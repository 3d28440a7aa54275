// Selection's one reading of the logits: of every tile the maxima of its
// quarters and its sum of exponentials (cuda_select.cu).
#include <algorithm>

#include "kernels/logits/cuda_row_pieces.cuh"
#include "kernels/select/cuda_select_steps.h"
#include "kernels/select/cuda_select_tiles.cuh"

namespace espalier::cuda_select {
namespace {

using cuda_logits::LanePiece;
using cuda_logits::LoadPiece;

struct ReadPolicy {
  // Warps work alone; eight make a block whose end is cheap to wait for.
  static constexpr int kMaxWarps = 8;
  static constexpr int kMaxThreads = kMaxWarps * kWarpSize;
  // A small input's blocks have fewer, down to one, as long as half of the
  // multiprocessors hold them: each takes in and works on less at a time, and
  // blocks that merge, which need one to themselves, find it free and are there
  // before the reading ends.
  static constexpr int kMultiprocessorsPerBlock = 2;
  // 64 registers a thread hold the piece in work and the next one on its way.
  static constexpr int kMinBlocks = 4;
  // Many tiles a warp hide the start of blocks; few spread a small input over
  // the device.
  static constexpr int kMaxTilesPerWarp = 2;
};

// Adds a lane's logits of a piece to what it has of the tile.
template <typename T>
__device__ void AddPiece(const LanePiece<T>& piece, LogSum& lane) {
  float x[16];
  Unpack(piece, x);
  AddLogits(x, lane);
}

// Brings the lanes' sums together.
__device__ inline void FinishTile(const LogSum& own, float* maxima,
                                  float* sum) {
  constexpr int kLanes = kWarpSize / kQuarters;  // of a quarter
  const int lane = threadIdx.x % kWarpSize;
  float max = MaxOverQuarter(own.max);
  if (lane % kLanes == 0) maxima[lane / kLanes] = max;
#pragma unroll
  for (int distance = kLanes; distance < kWarpSize; distance *= 2) {
    max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, distance));
  }
  const float total = SumOverWarp(own.Scaled(max));
  if (lane == 0) *sum = total;
}

// A block reads a run of tiles of row blockIdx.y, warp by warp in turn, each
// piece while the one before is worked on.
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
  // Both at once, so that they are waited for together.
  if ((group < 0) | !(cum > MinusInf())) return;
  const int warp = threadIdx.x / kWarpSize;
  const int num_warps = blockDim.x / kWarpSize;
  const int begin = blockIdx.x * num_warps * tiles_per_warp + warp;
  const int end = min(p.tiles, begin + (tiles_per_warp - 1) * num_warps + 1);
  if (begin >= end) return;
  const int size = p.in.vocab_size;
  const T* const logits =
      static_cast<const T*>(p.in.logits) + size_t(row) * size;
  const bool aligned = reinterpret_cast<uintptr_t>(logits) % 16 == 0;
  float* const maxima = p.scratch.maxima + size_t(row) * p.tiles * kQuarters;
  float* const sums = p.scratch.sums + size_t(row) * p.tiles;
  LanePiece<T> next = LoadPiece(logits, 2 * begin, size, aligned);
  // Known while that is on its way, which is for nothing only if the group is
  // somebody else's.
  if (p.in.groups[group].num_candidates < 1) return;
  LogSum lane;
#pragma unroll 1
  for (int tile = begin, second = 0; tile < end;) {
    const LanePiece<T> piece = next;
    const int next_tile = second ? tile + num_warps : tile;
    if (next_tile < end) {
      next = LoadPiece(logits, 2 * next_tile + 1 - second, size, aligned);
    }
    AddPiece(piece, lane);
    if (second) {
      FinishTile(lane, maxima + tile * kQuarters, sums + tile);
      lane = {};
    }
    tile = next_tile;
    second = 1 - second;
  }
}

template <typename T>
absl::Status LaunchRead(const Params& p, const CudaDevice& device,
                        cudaStream_t stream) {
  // As if all rows were alive: which are is known to the device alone.
  const int resident =
      device.num_sms * ReadPolicy::kMinBlocks * ReadPolicy::kMaxWarps;
  const int64_t tiles = int64_t{p.in.num_rows} * p.tiles;
  const int warps = static_cast<int>(std::clamp<int64_t>(
      (tiles * ReadPolicy::kMultiprocessorsPerBlock + device.num_sms - 1) /
          device.num_sms,
      1, ReadPolicy::kMaxWarps));
  const int per_warp = static_cast<int>(
      std::clamp<int64_t>(tiles / resident, 1, ReadPolicy::kMaxTilesPerWarp));
  const int per_block = warps * per_warp;
  const unsigned blocks = (p.tiles + per_block - 1) / per_block;
  return Launch(ReadTiles<T>,
                {.grid = dim3(blocks, p.in.num_rows),
                 .block = dim3(warps * kWarpSize),
                 .dependency = GridDependency::kReadsEarly},
                stream, p, per_warp);
}

}  // namespace

absl::Status ReadAllTiles(const Params& p, const CudaDevice& device,
                          cudaStream_t stream) {
  return p.in.dtype == DType::kFloat32
             ? LaunchRead<float>(p, device, stream)
             : LaunchRead<uint16_t>(p, device, stream);
}

}  // namespace espalier::cuda_select
