// Sampling's one reading of all logits: of every tile the maxima of its
// quarters and what these weigh, both after edits, and its raw sum of
// exponentials (cuda_sample.cu).
#include <algorithm>

#include "kernels/sample/cuda_sample_tile.cuh"

namespace espalier::cuda_sample {
namespace {

using cuda_logits::LoadPiece;

// As selection reads (ReadPolicy of cuda_select_read.cu), for its reasons.
struct ReadPolicy {
  static constexpr int kMaxWarps = 8;
  static constexpr int kMaxThreads = kMaxWarps * kWarpSize;
  static constexpr int kMultiprocessorsPerBlock = 2;
  static constexpr int kMinBlocks = 4;
  static constexpr int kMaxTilesPerWarp = 2;
};

// Warps read runs of tiles of row blockIdx.y, each piece while the one before
// is worked on. If `kEdits`, rows may have edits, which were there before.
template <typename T, bool kEdits>
__global__ __launch_bounds__(
    ReadPolicy::kMaxThreads,
    ReadPolicy::kMinBlocks) void ReadTiles(const __grid_constant__ Params p,
                                           int tiles_per_warp) {
  constexpr int kLanes = kWarpSize / kQuarters;  // of a quarter
  LaunchDependents();
  const int row = blockIdx.y;
  const int params = p.in.row_params[row];
  const float cum = p.in.cum_log_probs[row];
  const int num_warps = blockDim.x / kWarpSize;
  const int begin = blockIdx.x * num_warps * tiles_per_warp + Warp();
  const int end =
      min(p.num_tiles, begin + (tiles_per_warp - 1) * num_warps + 1);
  const bool wanted = (params >= 0) & (cum > MinusInf());
  GridDependencyWait();  // for logits
  if (!wanted || begin >= end) return;
  const int size = p.in.vocab_size;
  const T* const logits =
      static_cast<const T*>(p.in.logits) + size_t(row) * size;
  const bool aligned = reinterpret_cast<uintptr_t>(logits) % 16 == 0;
  LanePiece<T> next = LoadPiece(logits, 2 * begin, size, aligned);
  // While that is on its way.
  __shared__ WarpLogits<1> edited_pieces[kEdits ? ReadPolicy::kMaxWarps : 1];
  EditList edits;
  if (kEdits) edits = EditList(p.in, row);
  const bool edited = kEdits && edits.any();
  EditWindow window;
  if (edited) window = EditWindow::At(edits, begin * kTileSize);
  const Weighing weighing(p.in.params[params], size);
  const size_t first = size_t(row) * p.num_tiles;
  LaneTile lane;
  bool edits_tile = false;
#pragma unroll 1
  for (int tile = begin, second = 0; tile < end;) {
    const LanePiece<T> piece = next;
    const int next_tile = second ? tile + num_warps : tile;
    if (next_tile < end) {
      next = LoadPiece(logits, 2 * next_tile + 1 - second, size, aligned);
    }
    float x[16];
    Unpack(piece, x);
    if (edited && !second) {
      p.first_edits[first + tile] = window.next();
      edits_tile = window.Changes((tile + 1) * kTileSize);
    }
    if (edits_tile) {
      AddRaw(x, lane);
      window.ApplyToPieces<T>((2 * tile + second) * kWarpLoadSize,
                              edited_pieces[kEdits ? Warp() : 0], x);
      AddEdited(x, weighing, lane);
    } else {
      AddPiece(x, weighing, lane);
    }
    if (second) {
      const TileTotals totals = FinishTile(lane, weighing, edits_tile);
      const int at = Lane() / kLanes;
      if (Lane() % kLanes == 0) {
        reinterpret_cast<float*>(p.maxima + first + tile)[at] = totals.max;
        reinterpret_cast<float*>(p.sums + first + tile)[at] = totals.sum;
      }
      if (Lane() == 0) p.raw[first + tile] = totals.raw;
      lane = {};
      if (edited) window.SkipTo(next_tile * kTileSize);
    }
    tile = next_tile;
    second = 1 - second;
  }
}

template <typename T, bool kEdits>
absl::Status LaunchRead(const Params& p, const CudaDevice& device,
                        cudaStream_t stream) {
  // As if all rows were wanted: which are is known to the device alone.
  const int resident =
      device.num_sms * ReadPolicy::kMinBlocks * ReadPolicy::kMaxWarps;
  const int64_t tiles = int64_t{p.in.num_rows} * p.num_tiles;
  const int warps = static_cast<int>(std::clamp<int64_t>(
      (tiles * ReadPolicy::kMultiprocessorsPerBlock + device.num_sms - 1) /
          device.num_sms,
      1, ReadPolicy::kMaxWarps));
  const int per_warp = static_cast<int>(
      std::clamp<int64_t>(tiles / resident, 1, ReadPolicy::kMaxTilesPerWarp));
  const int per_block = warps * per_warp;
  const unsigned blocks = (p.num_tiles + per_block - 1) / per_block;
  return Launch(ReadTiles<T, kEdits>,
                {.grid = dim3(blocks, p.in.num_rows),
                 .block = dim3(warps * kWarpSize),
                 .dependency = GridDependency::kReadsEarly},
                stream, p, per_warp);
}

template <typename T>
absl::Status LaunchRead(const Params& p, const CudaDevice& device,
                        cudaStream_t stream) {
  return p.in.row_edits != nullptr ? LaunchRead<T, true>(p, device, stream)
                                   : LaunchRead<T, false>(p, device, stream);
}

}  // namespace

absl::Status ReadRows(const Params& p, const CudaDevice& device,
                      cudaStream_t stream) {
  return p.in.dtype == DType::kFloat32
             ? LaunchRead<float>(p, device, stream)
             : LaunchRead<uint16_t>(p, device, stream);
}

}  // namespace espalier::cuda_sample
