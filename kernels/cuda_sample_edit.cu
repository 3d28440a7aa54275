// What edits change of what a row's quarters come to (cuda_sample.cu): the
// quarters that have any are read again, by a warp for a run of tiles. Reading
// has no edits to look for, so that rows without them do not pay.
#include <algorithm>

#include "kernels/cuda_sample_row.cuh"

namespace espalier::cuda_sample {
namespace {

struct EditPolicy {
  // Warps work alone, and wait for memory most of the time.
  static constexpr int kWarps = 8;
  static constexpr int kThreads = kWarps * kWarpSize;
  static constexpr int kMinBlocks = 4;
  // A run of tiles finds its first edit once, and usually has all of its edits
  // on its lanes then; few rows are spread over the device.
  static constexpr int kMaxTilesPerWarp = 8;
};

// A warp: the maximum of a quarter after edits, and its sum of weights.
template <typename T>
__device__ WeightSum ReadQuarter(const RowLogits<T>& logits, int quarter,
                                 EditWindow window, float scale) {
  constexpr int kPerLane = cuda_select::kPerLane;
  const LaneLogits<T> loaded(logits, quarter);
  float x[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) x[i] = loaded.value(logits, i);
  window.Apply((quarter / kQuarters + 1) * kTileSize,
               [&](int i) { return loaded.token(i); }, x);
  float max = MinusInf();
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) max = fmaxf(max, x[i]);
  max = cuda_select::MaxOverWarp(max);
  return {max, cuda_select::SumOverWarp(CarefulSumOfWeights(x, max, scale))};
}

// Warps take runs of tiles of row blockIdx.y.
template <typename T>
__global__ __launch_bounds__(
    EditPolicy::kThreads,
    EditPolicy::kMinBlocks) void EditTiles(const __grid_constant__ Params p,
                                           int tiles_per_warp) {
  LetNextStart();
  const int row = blockIdx.y;
  const int params = p.in.row_params[row];
  const float cum = p.in.cum_log_probs[row];
  const EditList edits(p.in, row);
  const int warp = blockIdx.x * EditPolicy::kWarps + threadIdx.x / kWarpSize;
  const int begin = warp * tiles_per_warp;
  const int end = min(p.num_tiles, begin + tiles_per_warp);
  const bool wanted =
      params >= 0 && cum > MinusInf() && edits.any() && begin < end;
  // Edits and parameters are there before.
  float scale = 1;
  EditWindow window(edits, edits.row.end);
  if (wanted) {
    scale = ExponentScale(p.in.params[params].temperature);
    window = EditWindow::At(edits, begin * kTileSize);
  }
  WaitForPrevious();
  if (!wanted) return;
  const int lane = threadIdx.x % kWarpSize;
  const RowLogits<T> logits(
      static_cast<const T*>(p.in.logits) + size_t(row) * p.in.vocab_size,
      p.in.vocab_size);
#pragma unroll 1
  for (int tile = begin; tile < end; ++tile) {
    const EditWindow of_tile = window;
    unsigned quarters = window.template Quarters<T>((tile + 1) * kTileSize);
    if (edits.row.only_edited) quarters = (1u << kQuarters) - 1;
    const size_t at = size_t(row) * p.num_tiles + tile;
    if (lane == 0) p.first_edits[at] = of_tile.next();
#pragma unroll 1
    for (; quarters != 0; quarters &= quarters - 1) {
      const int quarter = __ffs(quarters) - 1;
      const WeightSum sum =
          ReadQuarter(logits, tile * kQuarters + quarter, of_tile, scale);
      if (lane != 0) continue;
      reinterpret_cast<float*>(p.maxima + at)[quarter] = sum.max;
      reinterpret_cast<float*>(p.sums + at)[quarter] = sum.sum;
    }
  }
}

}  // namespace

absl::Status EditRows(const Params& p, const CudaDevice& device,
                      cudaStream_t stream) {
  const int resident =
      device.num_sms * EditPolicy::kMinBlocks * EditPolicy::kWarps;
  const int64_t tiles = int64_t{p.in.num_rows} * p.num_tiles;
  const int per_warp = static_cast<int>(
      std::clamp<int64_t>(tiles / resident, 1, EditPolicy::kMaxTilesPerWarp));
  const int per_block = EditPolicy::kWarps * per_warp;
  const unsigned blocks = (p.num_tiles + per_block - 1) / per_block;
  const LaunchShape shape = {.grid = dim3(blocks, p.in.num_rows),
                             .block = dim3(EditPolicy::kThreads)};
  return p.in.dtype == DType::kFloat32
             ? Launch(EditTiles<float>, shape, stream, p, per_warp)
             : Launch(EditTiles<uint16_t>, shape, stream, p, per_warp);
}

}  // namespace espalier::cuda_sample
