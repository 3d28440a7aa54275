// Sampling's one reading of all logits: of every tile the maxima of its
// quarters and what these weigh, both after edits, and its raw sum of
// exponentials (cuda_sample.cu).
#include <algorithm>

#include "kernels/sample/cuda_sample_row.cuh"
#include "kernels/select/cuda_select_pieces.cuh"

namespace espalier::cuda_sample {
namespace {

using cuda_select::IsNan;
using cuda_select::kPieceSize;
using cuda_select::LanePiece;
using cuda_select::LoadPiece;
using cuda_select::LogSum;
using cuda_select::SumOverWarp;

// As selection reads (ReadPolicy of cuda_select_read.cu), for its reasons.
struct ReadPolicy {
  static constexpr int kMaxWarps = 8;
  static constexpr int kMaxThreads = kMaxWarps * kWarpSize;
  static constexpr int kMultiprocessorsPerBlock = 2;
  // Edits need more registers: of the 64 of four blocks many are spilled, which
  // takes 20% longer.
  template <bool kEdits>
  static constexpr int kMinBlocks = kEdits ? 3 : 4;
  static constexpr int kMaxTilesPerWarp = 2;
};

// What a lane has of a tile.
struct LaneTile {
  LogSum raw;
  float max = -__builtin_inff();  // of edited logits
  float weights = 0;              // in units of what that weighs
  bool nan = false;
};

// 2^x as FastExp2, which the compiler leaves where it is: of 32 in work at once
// it would have to put some away.
__device__ float Exp2InPlace(float x) {
  float e;
  asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x));
  return e;
}

// Sums of exp(x - max), in the order of SumOfExp, and of weights.
__device__ float2 SumsOf(const float (&x)[16], float max, float scale) {
  float sums[4] = {};
  float weights[4] = {};
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const float difference = x[i] - max;
    sums[i % 4] += Exp2InPlace(__fmul_rn(difference, 1.44269504f));
    weights[i % 4] += Exp2InPlace(__fmul_rn(difference, scale));
  }
  return {(sums[0] + sums[1]) + (sums[2] + sums[3]),
          (weights[0] + weights[1]) + (weights[2] + weights[3])};
}

// Where one is NaN. Rarely asked, so it need not be where it is asked.
__device__ __noinline__ float2 CarefulSumsOf(const float (&x)[16], float max,
                                             float scale, bool& nan) {
#pragma unroll
  for (int i = 0; i < 16; ++i) nan |= x[i] != x[i];
  return {cuda_select::CarefulSumOfExp(x, max),
          CarefulSumOfWeights(x, max, scale)};
}

// Adds a lane's logits of a piece that has no edits, of a tile that has none:
// raw ones as AddLogits (cuda_select_pieces.cuh), to the bit; and weights, if
// `same` those.
__device__ void AddPiece(const float (&x)[16], float scale, bool same,
                         LaneTile& lane) {
  float top = lane.raw.max;
#pragma unroll
  for (int i = 0; i < 16; ++i) top = fmaxf(top, x[i]);  // ignores NaN
  float2 sums =
      same ? float2{cuda_select::SumOfExp(x, top), 0} : SumsOf(x, top, scale);
  if (IsNan(sums.x)) {
    float copy[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) copy[i] = x[i];
    bool nan = false;
    sums = CarefulSumsOf(copy, top, scale, nan);
    lane.nan |= nan;
  }
  lane.weights =
      WeightSum{lane.raw.max, lane.weights}.Scaled(top, scale) + sums.y;
  lane.raw = {top, lane.raw.Scaled(top) + sums.x};
  lane.max = top;
}

__device__ float SumOfWeights(const float (&x)[16], float max, float scale) {
  float sums[4] = {};
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    sums[i % 4] += Exp2InPlace(__fmul_rn(x[i] - max, scale));
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// The same of a tile with edits, which are made in between.
template <typename T>
__device__ void AddEditedPiece(float (&x)[16], int piece, float scale,
                               EditWindow& window, LaneTile& lane) {
  cuda_select::AddLogits(x, lane.raw, [&] {
#pragma unroll
    for (int i = 0; i < 16; ++i) lane.nan |= x[i] != x[i];
  });
  window.Apply((piece + 1) * kPieceSize,
               [&](int i) { return cuda_select::PieceToken<T>(piece, i); }, x);
  float top = lane.max;
#pragma unroll
  for (int i = 0; i < 16; ++i) top = fmaxf(top, x[i]);
  float sum = SumOfWeights(x, top, scale);
  if (IsNan(sum)) sum = CarefulSumOfWeights(x, top, scale);
  lane.weights = WeightSum{lane.max, lane.weights}.Scaled(top, scale) + sum;
  lane.max = top;
}

// Where a tile's results go.
struct TileOut {
  RawTile* raw;
  float* maxima;
  float* sums;
};

// Brings the lanes together. `same`: weights are exponentials of raw logits.
__device__ void FinishTile(const LaneTile& own, float scale, bool same,
                           const TileOut& out) {
  constexpr int kLanes = kWarpSize / kQuarters;  // of a quarter
  const int lane = threadIdx.x % kWarpSize;
  float max = own.max;
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2) {
    max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, distance));
  }
  float sum = same ? own.raw.Scaled(max)
                   : WeightSum{own.max, own.weights}.Scaled(max, scale);
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  }
  if (lane % kLanes == 0) {
    out.maxima[lane / kLanes] = max;
    out.sums[lane / kLanes] = sum;
  }
  const float raw_max = cuda_select::MaxOverWarp(own.raw.max);
  const float raw_sum = SumOverWarp(own.raw.Scaled(raw_max));
  const bool nan = __any_sync(kAllLanes, own.nan);
  if (lane == 0) *out.raw = {raw_max, nan ? NAN : raw_sum};
}

// Warps read runs of tiles of row blockIdx.y, each piece while the one before
// is worked on. If `kEdits`, rows may have edits, which were there before.
template <typename T, bool kEdits>
__global__ __launch_bounds__(
    ReadPolicy::kMaxThreads,
    ReadPolicy::kMinBlocks<kEdits>) void ReadTiles(const __grid_constant__
                                                       Params p,
                                                   int tiles_per_warp) {
  LetNextStart();
  const int row = blockIdx.y;
  const int params = p.in.row_params[row];
  const float cum = p.in.cum_log_probs[row];
  const int warp = threadIdx.x / kWarpSize;
  const int num_warps = blockDim.x / kWarpSize;
  const int begin = blockIdx.x * num_warps * tiles_per_warp + warp;
  const int end =
      min(p.num_tiles, begin + (tiles_per_warp - 1) * num_warps + 1);
  const bool wanted = (params >= 0) & (cum > MinusInf());
  WaitForPrevious();  // for logits
  if (!wanted || begin >= end) return;
  const int size = p.in.vocab_size;
  const T* const logits =
      static_cast<const T*>(p.in.logits) + size_t(row) * size;
  const bool aligned = reinterpret_cast<uintptr_t>(logits) % 16 == 0;
  LanePiece<T> next = LoadPiece(logits, 2 * begin, size, aligned);
  // While that is on its way.
  EditList edits;
  if (kEdits) edits = EditList(p.in, row);
  const bool edited = kEdits && edits.any();
  EditWindow window;
  if (edited) window = EditWindow::At(edits, begin * kTileSize);
  const float temperature = p.in.params[params].temperature;
  const float scale = ExponentScale(temperature);
  // Greedy rows have no use for weights.
  const bool same = temperature == 1.0f || temperature == 0.0f;
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
      edits_tile = edits.row.only_edited || window.Has((tile + 1) * kTileSize);
    }
    if (edits_tile) {
      AddEditedPiece<T>(x, 2 * tile + second, scale, window, lane);
    } else {
      AddPiece(x, scale, same, lane);
    }
    if (second) {
      FinishTile(lane, scale, same && !edits_tile,
                 {p.raw + first + tile,
                  reinterpret_cast<float*>(p.maxima + first + tile),
                  reinterpret_cast<float*>(p.sums + first + tile)});
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
      device.num_sms * ReadPolicy::kMinBlocks<kEdits> * ReadPolicy::kMaxWarps;
  const int64_t tiles = int64_t{p.in.num_rows} * p.num_tiles;
  const int warps = static_cast<int>(std::clamp<int64_t>(
      (tiles * ReadPolicy::kMultiprocessorsPerBlock + device.num_sms - 1) /
          device.num_sms,
      1, ReadPolicy::kMaxWarps));
  const int per_warp = static_cast<int>(
      std::clamp<int64_t>(tiles / resident, 1, ReadPolicy::kMaxTilesPerWarp));
  const int per_block = warps * per_warp;
  const unsigned blocks = (p.num_tiles + per_block - 1) / per_block;
  return Launch(
      ReadTiles<T, kEdits>,
      {.grid = dim3(blocks, p.in.num_rows), .block = dim3(warps * kWarpSize)},
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
