// The whole selection of few groups without edits, in one launch: a cluster of
// blocks per group, which keeps the logits in registers after reading them
// once.
//
//   - Each warp reads up to kHeld tiles, and writes their statistics to all
//     blocks of the cluster.
//   - Each block sums the rows and finds the threshold by itself, which is
//     faster than waiting for one block.
//   - Elements that reach it are found in the registers and sent to the first
//     block, which ranks them.
//
// So only the logits pass through memory. The second launch, which reads maxima
// and some logits again, is saved: 1.4 us of the 6.4 that four rows of 32,000
// take in two launches. Each step's arithmetic is that of two launches, in the
// same order, so a row's bits are the same.
#include <algorithm>

#include "base/status.h"
#include "kernels/cuda_kernel_support.cuh"
#include "kernels/logits/cuda_row_pieces.cuh"
#include "kernels/select/cuda_select_cut.cuh"
#include "kernels/select/cuda_select_finish.cuh"
#include "kernels/select/cuda_select_steps.h"
#include "kernels/select/cuda_select_tiles.cuh"

namespace espalier::cuda_select {
namespace {

using cuda_logits::LanePiece;
using cuda_logits::LoadNoAllocate;
using cuda_logits::LoadPiece;

struct ClusterPolicy {
  // A group of the largest size has a processing cluster of its own (16 or 18
  // multiprocessors). Not every device supports 16 blocks a cluster
  // (AllowsClusters).
  static constexpr int kMaxBlocks = 16;
  // With more groups, or smaller processing clusters.
  static constexpr int kMinBlocks = 8;
  // A block reads 50 bytes a nanosecond: more bytes than these take longer than
  // the second launch, unless clusters have about half of the device.
  static constexpr int kMaxFewBytes = 64 << 10;
  static constexpr int kMultiprocessorsPerBlock = 3;
  static constexpr int kThreads = 512;  // 128 registers each
  static constexpr int kWarps = kThreads / kWarpSize;
  static constexpr int kMaxRows = kWarps;  // one warp per row of a group
  // Tiles that a warp keeps in 64 registers a lane: with 16 blocks, four rows
  // of 128,256 float32 logits.
  static constexpr int MaxTilesPerWarp(int logit_bytes) {
    return 8 / logit_bytes;
  }
};

template <typename T>
constexpr int kHeld = ClusterPolicy::MaxTilesPerWarp(sizeof(T));
template <typename T>
constexpr int kMaxTiles =
    kHeld<T>* ClusterPolicy::kWarps* ClusterPolicy::kMaxBlocks;

template <typename T>
struct ClusterShared {
  // Per tile of all rows of the group.
  float4 maxima[kMaxTiles<T>];
  float sums[kMaxTiles<T>];
  RowStats stats[ClusterPolicy::kWarps];
  MergeShared merge;
};

// A tile in a warp's registers.
template <typename T>
struct HeldTile {
  int index;  // among the tiles of all rows
  int beam;   // -1: no tile, or its row is dead
  int tile;   // in the row
  float max;  // over this lane's logits
  LanePiece<T> pieces[2];
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// 16 bytes of -inf.
template <typename T>
__device__ uint4 NoLogits() {
  constexpr uint32_t kWord = sizeof(T) == 4 ? 0xFF800000u : 0xFF80FF80u;
  return {kWord, kWord, kWord, kWord};
}

// Loads a piece of a row of whole vectors.
template <typename T>
__device__ LanePiece<T> LoadVectors(const T* row, int piece, int size) {
  constexpr int kPerLoad = LanePiece<T>::kPerLoad;
  const int lane = threadIdx.x % kWarpSize;
  LanePiece<T> loaded;
#pragma unroll
  for (int i = 0; i < LanePiece<T>::kLoads; ++i) {
    const int at = piece * kWarpLoadSize + (i * kWarpSize + lane) * kPerLoad;
    loaded.words[i] = at < size ? LoadNoAllocate(row + at) : NoLogits<T>();
  }
  return loaded;
}

// Returns the token of a lane's index-th logit of a tile, of 32.
template <typename T>
__device__ int TokenAt(int tile, int index) {
  constexpr int kPerLoad = LanePiece<T>::kPerLoad;
  const int lane = threadIdx.x % kWarpSize;
  const int piece = index / 16, load = index % 16 / kPerLoad;
  return tile * kTileSize + piece * kWarpLoadSize +
         (load * kWarpSize + lane) * kPerLoad + index % kPerLoad;
}

// Statistics of a tile, in all lanes.
struct TileTotals {
  float4 maxima;  // per quarter
  float sum;
};

// As FinishTile in cuda_select_read.cu.
__device__ inline TileTotals TotalsOf(const LogSum& own) {
  const float4 maxima = cuda_logits::OfQuarters(MaxOverQuarter(own.max));
  return {maxima, WarpSum(own.Scaled(MaxOf(maxima)))};
}

// Returns the counterpart of `own` in another block of the cluster.
template <typename Shared>
__device__ Shared* SharedOf(Shared& own, int block) {
  return static_cast<Shared*>(__cluster_map_shared_rank(&own, block));
}

// Assigns the group's tiles to warps. Neighbouring tiles of a row belong to
// different blocks.
template <typename T>
__device__ void PlaceTiles(const Params& p, const CudaSelectGroup& group,
                           HeldTile<T> (&held)[kHeld<T>]) {
  const int warp = threadIdx.x / kWarpSize;
  const int num_tiles = group.num_rows * p.tiles;
#pragma unroll
  for (int i = 0; i < kHeld<T>; ++i) {
    HeldTile<T>& own = held[i];
    own.index = (i * ClusterPolicy::kWarps + warp) * gridDim.x + blockIdx.x;
    own.beam = -1;
    if (own.index >= num_tiles) continue;
    const int beam = own.index / p.tiles;
    own.tile = own.index - beam * p.tiles;
    if (p.in.cum_log_probs[group.first_row + beam] > MinusInf()) {
      own.beam = beam;
    }
  }
}

template <typename T, bool kVectors>
__device__ void LoadTiles(const Params& p, const CudaSelectGroup& group,
                          HeldTile<T> (&held)[kHeld<T>]) {
  const int size = p.in.vocab_size;
#pragma unroll
  for (int i = 0; i < kHeld<T>; ++i) {
    HeldTile<T>& own = held[i];
    if (own.beam < 0) continue;
    const T* const row = static_cast<const T*>(p.in.logits) +
                         size_t(group.first_row + own.beam) * size;
    if constexpr (kVectors) {
      own.pieces[0] = LoadVectors(row, 2 * own.tile, size);
      own.pieces[1] = LoadVectors(row, 2 * own.tile + 1, size);
    } else {
      const bool aligned = reinterpret_cast<uintptr_t>(row) % 16 == 0;
      own.pieces[0] = LoadPiece(row, 2 * own.tile, size, aligned);
      own.pieces[1] = LoadPiece(row, 2 * own.tile + 1, size, aligned);
    }
  }
}

// Writes to all blocks of the cluster, one lane per block.
template <typename T>
__device__ void BroadcastTileStats(HeldTile<T> (&held)[kHeld<T>],
                                   ClusterShared<T>& shared) {
  const unsigned lane = threadIdx.x % kWarpSize;
#pragma unroll
  for (int i = 0; i < kHeld<T>; ++i) {
    HeldTile<T>& own = held[i];
    if (own.beam < 0) continue;
    LogSum sum;
    float x[16];
    Unpack(own.pieces[0], x);
    AddLogits(x, sum);
    Unpack(own.pieces[1], x);
    AddLogits(x, sum);
    own.max = sum.max;
    const TileTotals totals = TotalsOf(sum);
    if (lane >= gridDim.x) continue;
    ClusterShared<T>* const other = SharedOf(shared, lane);
    other->maxima[own.index] = totals.maxima;
    other->sums[own.index] = totals.sum;
  }
}

// The view does not search for edits.
template <typename T>
__device__ RowView<T> ViewOf(const Params& p, const CudaSelectGroup& group,
                             int beam, const RowStats& stats) {
  return RowView<T>(p, group, beam, /*by_logit=*/false, stats, CudaRowEdits{});
}

// Computes the softmax of all rows, one warp per row. The first block keeps
// them for MergeExact.
template <typename T>
__device__ Summed SumGroup(const Params& p, const CudaSelectGroup& group,
                           ClusterShared<T>& shared) {
  Summed summed;
  const int beam = threadIdx.x / kWarpSize;
  if (beam >= group.num_rows) return summed;
  const int row = group.first_row + beam;
  const int first = beam * p.tiles;
  QuarterMaxima own;
  const RowStats stats =
      SumTiles({&shared.maxima[first].x, shared.sums + first, p.tiles},
               p.in.cum_log_probs[row], summed.batch, own);
  if (threadIdx.x % kWarpSize == 0) {
    shared.stats[beam] = stats;
    if (blockIdx.x == 0) p.scratch.stats[row] = stats;
  }
  AddScores(ViewOf<T>(p, group, beam, stats), own, summed.own);
  return summed;
}

// Sends elements of a tile that reach the threshold to the cluster's first
// block.
template <typename T>
__device__ void SendAboveThreshold(const HeldTile<T>& own,
                                   const RowView<T>& row, float cut,
                                   MergeShared* first) {
  const float floor = row.Floor(cut);
  if (!(own.max >= floor)) return;
  AboveThreshold reached;
#pragma unroll
  for (int piece = 0; piece < 2; ++piece) {
    float x[16];
    Unpack(own.pieces[piece], x);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      if (x[i] >= floor) reached.Add(16 * piece + i, x[i]);
    }
  }
  const auto append = [&](const Entry& entry) {
    const int i = atomicAdd(&first->num_entries, 1);
    if (i < kMaxEntries) first->entries[i] = entry;
  };
  reached.ForEach([&](int i, bool at_hand) {
    const int token = TokenAt<T>(own.tile, i);
    AppendIfAbove(row, token, at_hand ? reached.logit : row.Logit(token), cut,
                  append);
  });
}

template <typename T, bool kVectors>
__device__ void SelectGroup(const Params& p, ClusterShared<T>& shared) {
  const int group_idx = blockIdx.y;
  const CudaSelectGroup group = p.in.groups[group_idx];
  const int num_groups = *p.in.num_groups;
  const int m = group.num_candidates;
  HeldTile<T> held[kHeld<T>];
  const bool exists = group_idx < num_groups && m > 0 && m <= kMaxNarrow;
  if (exists) PlaceTiles(p, group, held);
  GridDependencyWait();  // for logits; the rest was there before
  if (!exists) return;
  LoadTiles<T, kVectors>(p, group, held);
  __cluster_barrier_wait();  // all blocks have begun
  BroadcastTileStats(held, shared);
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
  MergeShared& merge = shared.merge;
  const Summed summed = SumGroup<T>(p, group, shared);
  if (m <= kMaxFew) {
    FindThreshold<ClusterPolicy, kFewMaxima>(p, group, summed, merge);
  } else {
    FindThreshold<ClusterPolicy, kMaxima>(p, group, summed, merge);
  }
  const float cut = CutScore(merge.cut);
  MergeShared* const first = &SharedOf(shared, 0)->merge;
#pragma unroll
  for (int i = 0; i < kHeld<T>; ++i) {
    if (held[i].beam < 0) continue;
    const RowView<T> row =
        ViewOf<T>(p, group, held[i].beam, shared.stats[held[i].beam]);
    if (row.alive()) SendAboveThreshold(held[i], row, cut, first);
  }
  __cluster_barrier_arrive();
  if (blockIdx.x != 0) return;
  __cluster_barrier_wait();
  FinishGroup<T>(p, group, group_idx, /*by_logit=*/false, merge);
}

#endif

// The gridDim.x blocks of a group are a cluster. `kVectors`: all rows are
// 16-byte aligned, and their length is a multiple of 16 bytes.
template <typename T, bool kVectors>
__global__ __launch_bounds__(ClusterPolicy::kThreads, 1) void SelectGroups(
    const __grid_constant__ Params p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  __shared__ ClusterShared<T> shared;
  LaunchDependents();
  Clear(shared.merge);
  // The next barrier publishes the cleared values, before any block adds to
  // them.
  __cluster_barrier_arrive_relaxed();
  SelectGroup<T, kVectors>(p, shared);
#endif
}

using Kernel = void (*)(Params);
Kernel KernelOf(const CudaSelectInputs& in) {
  const bool vectors = int64_t{in.vocab_size} * NumBytes(in.dtype) % 16 == 0 &&
                       reinterpret_cast<uintptr_t>(in.logits) % 16 == 0;
  if (in.dtype == DType::kFloat32) {
    return vectors ? SelectGroups<float, true> : SelectGroups<float, false>;
  }
  return vectors ? SelectGroups<uint16_t, true> : SelectGroups<uint16_t, false>;
}

LaunchConfig ShapeOf(const Params& p, int num_blocks) {
  return {.grid = dim3(num_blocks, p.in.max_groups),
          .block = dim3(ClusterPolicy::kThreads),
          .cluster = num_blocks,
          .dependency = GridDependency::kReadsEarly};
}

// True if the device can run all clusters of that many blocks at once.
bool AllowsClusters(Kernel kernel, const LaunchConfig& shape,
                    const CudaDevice& device) {
  return HasClusters(kernel, device) &&
         MaxActiveClusters(kernel, shape) >= static_cast<int>(shape.grid.y);
}

constexpr int kNumsOfBlocks[] = {ClusterPolicy::kMaxBlocks,
                                 ClusterPolicy::kMinBlocks};

int MaxGroupRows(const CudaSelectInputs& in) {
  return in.max_group_rows > 0 ? in.max_group_rows : in.num_rows;
}

// True if clusters of `blocks` are expected to be faster than two launches for
// groups of up to `num_rows` rows, if the device allows them.
bool IsProfitable(const CudaSelectInputs& in, int num_rows, int blocks,
                  const CudaDevice& device) {
  const int bytes = NumBytes(in.dtype);
  if (device.compute_capability < 90 || in.row_edits != nullptr ||
      in.max_candidates > kMaxNarrow || num_rows > ClusterPolicy::kMaxRows) {
    return false;
  }
  const int num_tiles = num_rows * NumTiles(in);  // per group
  const int num_blocks = blocks * in.max_groups;
  if (num_tiles > blocks * ClusterPolicy::kWarps *
                      ClusterPolicy::MaxTilesPerWarp(bytes) ||
      in.max_groups > kMaxFewCudaSelectGroups || num_blocks > device.num_sms) {
    return false;
  }
  return num_tiles * kTileSize * bytes <=
             blocks * ClusterPolicy::kMaxFewBytes ||
         num_blocks * ClusterPolicy::kMultiprocessorsPerBlock >= device.num_sms;
}

// Returns the blocks of a group, or 0 if a cluster is not profitable.
int NumBlocks(const Params& p, Kernel kernel, const CudaDevice& device) {
  for (const int blocks : kNumsOfBlocks) {
    if (IsProfitable(p.in, MaxGroupRows(p.in), blocks, device) &&
        AllowsClusters(kernel, ShapeOf(p, blocks), device)) {
      return blocks;
    }
  }
  return 0;
}

}  // namespace

absl::StatusOr<bool> SelectInClusters(const Params& p, const CudaDevice& device,
                                      cudaStream_t stream) {
  const Kernel kernel = KernelOf(p.in);
  const int blocks = NumBlocks(p, kernel, device);
  if (blocks == 0) return false;
  RETURN_IF_ERROR(Launch(kernel, ShapeOf(p, blocks), stream, p));
  return true;
}

}  // namespace espalier::cuda_select

namespace espalier {

// The bound of rows only decides which clusters are profitable, and more rows
// never make more of them profitable.
int CudaSelectRowBucket(const CudaSelectInputs& inputs,
                        const CudaDevice& device) {
  using namespace cuda_select;  // NOLINT
  const auto paying = [&](int num_rows) {
    return std::ranges::count_if(kNumsOfBlocks, [&](int blocks) {
      return IsProfitable(inputs, num_rows, blocks, device);
    });
  };
  int num_rows = MaxGroupRows(inputs);
  const auto count = paying(num_rows);
  if (count == 0) return inputs.num_rows;
  while (num_rows < inputs.num_rows && paying(num_rows + 1) == count) {
    ++num_rows;
  }
  return num_rows;
}

}  // namespace espalier
