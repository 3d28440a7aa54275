// The one pass over all logits in sampling: for every tile the maxima of its
// quarters and their sums of weights, both after edits, and its raw sum of
// exponentials (cuda_sample.cu).
#include <type_traits>

#include "kernels/logits/cuda_read_tiles.cuh"
#include "kernels/sample/cuda_sample_tile.cuh"

namespace espalier::cuda_sample {
namespace {

using cuda_logits::ReadPolicy;
using cuda_logits::RowPieces;
using cuda_logits::StorePiece;
using cuda_logits::WarpTiles;

// If `kEdits`, rows may have edits, which earlier kernels wrote; if `kCopies`,
// rows may be copied.
template <typename T, bool kEdits, bool kCopies>
__global__ __launch_bounds__(
    ReadPolicy::kMaxThreads,
    ReadPolicy::kMinBlocks) void ReadTiles(const __grid_constant__ Params p,
                                           int tiles_per_warp) {
  using Logit = LogitOf<T>;
  using Edits = EditList<kIsMasked<T>>;
  using Window = EditWindow<kIsMasked<T>>;
  constexpr int kLanes = kWarpSize / kQuarters;  // per quarter
  LaunchDependents();
  const int row = blockIdx.y;
  const int params = p.in.row_params[row];
  // Verification of drafts passes no cum_log_probs, and all its rows are alive.
  const float cum =
      p.in.cum_log_probs != nullptr ? p.in.cum_log_probs[row] : 0.0f;
  const int size = p.in.vocab_size;
  const RowPieces<Logit> logits(p.LogitsOf<Logit>(row), size);
  const WarpTiles tiles(p.num_tiles, tiles_per_warp);
  float* const copy = kCopies ? p.CopyOfRow(row) : nullptr;
  const bool wanted = (params >= 0) & (cum > MinusInf());
  GridDependencyWait();  // for logits
  if (!wanted || !tiles.any()) return;
  const LanePiece<Logit> first_piece = logits.Load(2 * tiles.begin);
  // Runs while that load is in flight.
  __shared__ WarpLogits<1> edited_pieces[kEdits ? ReadPolicy::kMaxWarps : 1];
  Edits edits;
  if (kEdits) edits = Edits(p.in, row);
  const bool edited = kEdits && edits.any();
  Window window;
  if (edited) window = Window::At(edits, tiles.begin * kTileSize);
  const Weighing weighing(p.in.params[params], size);
  const size_t first = size_t(row) * p.num_tiles;
  LaneTile lane;
  bool edits_tile = false;
  const auto add = [&](const LanePiece<Logit>& piece, int tile, int second) {
    if constexpr (kCopies) {
      if (copy != nullptr) StorePiece(piece, 2 * tile + second, size, copy);
    }
    float x[16];
    Unpack(piece, x);
    if (edited && !second) {
      p.first_edits[first + tile] = window.next();
      edits_tile = window.Changes((tile + 1) * kTileSize);
    }
    if (edits_tile) {
      AddRaw(x, lane);
      window.template ApplyToPieces<Logit>((2 * tile + second) * kWarpLoadSize,
                                           edited_pieces[kEdits ? Warp() : 0],
                                           x);
      AddEdited(x, weighing, lane);
    } else {
      AddPiece(x, weighing, lane);
    }
    if (!second) return;
    const TileTotals totals = FinishTile(lane, weighing, edits_tile);
    const int at = Lane() / kLanes;
    if (Lane() % kLanes == 0) {
      reinterpret_cast<float*>(p.maxima + first + tile)[at] = totals.max;
      reinterpret_cast<float*>(p.sums + first + tile)[at] = totals.sum;
    }
    if (Lane() == 0) p.raw[first + tile] = totals.raw;
    lane = {};
    if (edited) window.SkipTo((tile + tiles.stride) * kTileSize);
  };
  ForEachPiece(logits, tiles, first_piece, add);
}

template <typename T, bool kEdits, bool kCopies = false>
absl::Status LaunchRead(const Params& p, const CudaDevice& device,
                        cudaStream_t stream) {
  const auto [launch, tiles_per_warp] =
      cuda_logits::ShapeOfReading(p.in.num_rows, p.num_tiles, device);
  return Launch(ReadTiles<T, kEdits, kCopies>, launch, stream, p,
                tiles_per_warp);
}

template <typename T>
absl::Status LaunchRead(const Params& p, const CudaDevice& device,
                        cudaStream_t stream) {
  const bool has_edits = p.in.row_edits != nullptr;
  if constexpr (std::is_same_v<LogitOf<T>, float>) {
    if (p.in.copies != nullptr) {
      return kIsMasked<T> || has_edits
                 ? LaunchRead<T, true, true>(p, device, stream)
                 : LaunchRead<T, kIsMasked<T>, true>(p, device, stream);
    }
  }
  return kIsMasked<T> || has_edits
             ? LaunchRead<T, true>(p, device, stream)
             : LaunchRead<T, kIsMasked<T>>(p, device, stream);
}

}  // namespace

absl::Status ReadRows(const Params& p, const CudaDevice& device,
                      cudaStream_t stream) {
  return ByRowType(
      p.in, [&]<typename T>() { return LaunchRead<T>(p, device, stream); });
}

}  // namespace espalier::cuda_sample
