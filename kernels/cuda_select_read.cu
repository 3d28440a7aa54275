// Selection's one reading of the logits: of every tile the maxima of its
// quarters and its sum of exponentials (cuda_select.cu).
#include <algorithm>

#include "kernels/cuda_select_steps.h"
#include "kernels/cuda_select_tiles.cuh"

namespace espalier::cuda_select {
namespace {

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

// A lane's 16 logits of a piece as they lie in memory.
template <typename T>
struct LanePiece {
  static constexpr int kPerLoad = 16 / sizeof(T);
  static constexpr int kLoads = kPieceSize / kWarpSize / kPerLoad;
  uint4 words[kLoads];
};

// Streams through: the little that is read again comes from the second level.
__device__ inline uint4 LoadOnce(const void* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

__device__ inline uint32_t BitsAt(const float* row, int i, int size) {
  return i < size ? __float_as_uint(row[i]) : 0xFF800000u;  // -inf
}
__device__ inline uint32_t BitsAt(const uint16_t* row, int i, int size) {
  return i < size ? row[i] : 0xFF80u;  // -inf
}

// Words made of single elements: at a row's end, and of a row that does not
// start at a multiple of 16 bytes. The same lanes get the same elements.
template <typename T>
__device__ uint4 LoadElements(const T* row, int begin, int size) {
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(T) == 4) {
      words[i] = BitsAt(row, begin + i, size);
    } else {
      words[i] = BitsAt(row, begin + 2 * i, size) |
                 BitsAt(row, begin + 2 * i + 1, size) << 16;
    }
  }
  return {words[0], words[1], words[2], words[3]};
}

template <typename T>
__device__ LanePiece<T> LoadPiece(const T* row, int piece, int size,
                                  bool aligned) {
  constexpr int kPerLoad = LanePiece<T>::kPerLoad;
  const int begin =
      piece * kPieceSize + static_cast<int>(threadIdx.x % kWarpSize) * kPerLoad;
  const bool whole = aligned && (piece + 1) * kPieceSize <= size;
  constexpr int kStride = kWarpSize * kPerLoad;
  LanePiece<T> loaded;
  if (whole) {
#pragma unroll
    for (int i = 0; i < LanePiece<T>::kLoads; ++i) {
      loaded.words[i] = LoadOnce(row + begin + i * kStride);
    }
  } else {
#pragma unroll
    for (int i = 0; i < LanePiece<T>::kLoads; ++i) {
      loaded.words[i] = LoadElements(row, begin + i * kStride, size);
    }
  }
  return loaded;
}

__device__ inline void Unpack(const LanePiece<float>& piece, float (&x)[16]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[4 * i] = __uint_as_float(piece.words[i].x);
    x[4 * i + 1] = __uint_as_float(piece.words[i].y);
    x[4 * i + 2] = __uint_as_float(piece.words[i].z);
    x[4 * i + 3] = __uint_as_float(piece.words[i].w);
  }
}
__device__ inline void Unpack(const LanePiece<uint16_t>& piece,
                              float (&x)[16]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t words[4] = {piece.words[i].x, piece.words[i].y,
                               piece.words[i].z, piece.words[i].w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      x[8 * i + 2 * j] = __uint_as_float(words[j] << 16);
      x[8 * i + 2 * j + 1] = __uint_as_float(words[j] & 0xFFFF0000u);
    }
  }
}

__device__ inline float SumOfExp(const float (&x)[16], float max) {
  float sums[4] = {};
#pragma unroll
  for (int i = 0; i < 16; ++i) sums[i % 4] += FastExp(x[i] - max);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// The assembler concludes from max >= x that no exponential is NaN, which does
// not hold for infinities, and would leave the question out. It cannot see
// through a shuffle.
__device__ inline bool IsNan(float sum) {
  return isnan(__shfl_sync(kAllLanes, sum, threadIdx.x % kWarpSize));
}

// Where that is NaN: there is NaN among the logits, or `max` is infinite.
__device__ float CarefulSumOfExp(const float (&x)[16], float max) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const float e = x[i] == max ? 1.0f : FastExp(x[i] - max);
    sum += x[i] > MinusInf() ? e : 0.0f;
  }
  return sum;
}

// Adds a lane's logits of a piece to what it has of the tile.
template <typename T>
__device__ void AddPiece(const LanePiece<T>& piece, LogSum& lane) {
  float x[16];
  Unpack(piece, x);
  float top = lane.max;
#pragma unroll
  for (int i = 0; i < 16; ++i) top = fmaxf(top, x[i]);  // ignores NaN
  float sum = SumOfExp(x, top);
  if (IsNan(sum)) sum = CarefulSumOfExp(x, top);
  lane = {top, lane.Scaled(top) + sum};
}

// Brings the lanes' sums together.
__device__ inline void FinishTile(const LogSum& own, float* maxima,
                                  float* sum) {
  constexpr int kLanes = kWarpSize / kQuarters;  // of a quarter
  const int lane = threadIdx.x % kWarpSize;
  float max = own.max;
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2) {
    max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, distance));
  }
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
  LetNextStart();
  const int row = blockIdx.y;
  const int group = p.in.row_groups[row];
  const float cum = p.in.cum_log_probs[row];
  WaitForPrevious();  // for logits; the rest was there before
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
  return Launch(
      ReadTiles<T>,
      {.grid = dim3(blocks, p.in.num_rows), .block = dim3(warps * kWarpSize)},
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
