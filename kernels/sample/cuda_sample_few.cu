// Few draws, each in one launch: a cluster of blocks reads the row of a draw
// and keeps it in its registers.
//
//   - Each warp reads up to one tile, edits it, and writes its statistics to
//     all blocks of the cluster.
//   - Each block finds the cut by itself, as far as tiles determine it
//     (cuda_sample_filter.cuh), which is faster than waiting for one block.
//   - The warps send the few tokens within the cut to the first block, which
//     draws. If more are left, all blocks continue as in two launches.
//
// Greedy rows and rows without filters end as in two launches, in the first
// block. This saves the second launch and a table of tiles in memory and, if
// few tokens are kept, reading the best quarters again. The arithmetic of tiles
// and of draws is that of two launches, so a draw has the same bits.
#include "base/status.h"
#include "kernels/cuda_kernel_support.cuh"
#include "kernels/sample/cuda_sample_draw.cuh"
#include "kernels/sample/cuda_sample_tile.cuh"
#include "kernels/sample/sample_filters.h"

namespace espalier::cuda_sample {
namespace {

using cuda_logits::OfQuarters;
using cuda_logits::RowPieces;

constexpr int kWarps = kWarpsOf<SmallBatchPolicy>;
constexpr int kMaxTiles = kWarps * kMaxCluster;
// Blocks of a draw. With fewer, each block reads for so long that two launches
// are faster, as the first of them uses the whole device.
constexpr int kBlockCounts[] = {16, 8};

struct HeldShared {
  // Per tile of the whole row.
  float4 maxima[kMaxTiles];
  float4 sums[kMaxTiles];
  RawTile raw[kMaxTiles];
  int first_edits[kMaxTiles];
  // Per warp of the block.
  WarpLogits<2> edited_tiles[kWarps];
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// The tile that a warp keeps in registers, if there is one for it.
template <typename T>
class HeldTile {
 public:
  static constexpr bool kHolds = true;

  // Neighbouring tiles belong to different blocks. Runs before the row is
  // complete.
  __device__ HeldTile(const Params& p, const EditList<false>& edits)
      : tile_(Warp() * NumBlocks<SmallBatchPolicy>() +
              BlockRank<SmallBatchPolicy>()),
        exists_(tile_ < p.num_tiles) {
    if (!exists_ || !edits.any()) return;
    window_ = EditWindow<false>::At(edits, tile_ * kTileSize);
    first_edit_ = window_.next();
    is_edited_ = window_.Changes((tile_ + 1) * kTileSize);
  }

  template <bool kCopies>
  __device__ void Load(const Params& p, int row) {
    if (!exists_) return;
    const RowPieces<T> logits(p.in.logits, row, p.in.vocab_size);
#pragma unroll
    for (int i = 0; i < 2; ++i) raw_[i] = logits.Load(2 * tile_ + i);
    if constexpr (kCopies) Copy(p, p.CopyOfRow(row));
  }

  __device__ void Edit(WarpLogits<2>& shared) {
    if (!exists_) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float x[16];
      Unpack(raw_[i], x);
#pragma unroll
      for (int j = 0; j < 16; ++j) edited_[16 * i + j] = x[j];
    }
    if (!is_edited_) return;
    window_.template ApplyToPieces<T>(tile_ * kTileSize, shared, edited_);
  }

  // Writes its quarters' maxima to all blocks of the cluster, one lane per
  // block,
  __device__ void BroadcastMaxima(HeldShared& shared) {
    if (!exists_) return;
#pragma unroll
    for (int i = 0; i < 32; ++i) max_ = fmaxf(max_, edited_[i]);
    const float4 maxima = OfQuarters(cuda_logits::MaxOverQuarter(max_));
    if (Lane() >= NumBlocks<SmallBatchPolicy>()) return;
    MapSharedRank(shared.maxima[tile_], Lane()) = maxima;
  }

  // and the sums.
  __device__ void BroadcastSums(const Weighing& weighing, HeldShared& shared) {
    if (!exists_) return;
    LaneTile lane;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float x[16];
      Unpack(raw_[i], x);
      if (is_edited_) {
        AddRaw(x, lane);
#pragma unroll
        for (int j = 0; j < 16; ++j) x[j] = edited_[16 * i + j];
        AddEdited(x, weighing, lane);
      } else {
        AddPiece(x, weighing, lane);
      }
    }
    const TileTotals totals = FinishTile(lane, weighing, is_edited_);
    const float4 sums = OfQuarters(totals.sum);
    if (Lane() >= NumBlocks<SmallBatchPolicy>()) return;
    MapSharedRank(shared.sums[tile_], Lane()) = sums;
    MapSharedRank(shared.raw[tile_], Lane()) = totals.raw;
    MapSharedRank(shared.first_edits[tile_], Lane()) = first_edit_;
  }

  // Calls visit(logit, token), both after edits, for logits with
  // reaches(logit).
  template <typename Reaches, typename Visit>
  __device__ void ForEach(const Reaches& reaches, const Visit& visit) const {
    if (!exists_ || !reaches(max_)) return;
    unsigned reached = 0;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      reached |= reaches(edited_[i]) ? 1u << i : 0;
    }
#pragma unroll 1
    for (; reached != 0; reached &= reached - 1) {
      const int index = __ffs(reached) - 1;
      float x = 0;
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        if (i == index) x = edited_[i];
      }
      visit(x, cuda_logits::PieceToken<T>(2 * tile_ + index / 16, index % 16));
    }
  }

 private:
  __device__ void Copy(const Params& p, float* copy) const {
    if (copy == nullptr) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      cuda_logits::StorePiece(raw_[i], 2 * tile_ + i, p.in.vocab_size, copy);
    }
  }

  int tile_;
  bool exists_;
  bool is_edited_ = false;
  int first_edit_ = 0;
  EditWindow<false> window_;
  LanePiece<T> raw_[2];
  float edited_[32];
  float max_ = -__builtin_inff();  // edited maximum
};

template <typename T, bool kCopies>
__device__ void ReadAndDraw(const Params& p, HeldShared& shared) {
  const DrawTask task(
      p, static_cast<int>(blockIdx.x) / NumBlocks<SmallBatchPolicy>());
  const Weighing weighing(task.options.params, p.in.vocab_size);
  const bool few = KeepsFew(task.options.params, p.in.vocab_size);
  HeldTile<T> held(
      p, task.alive ? EditList<false>(p.in, task.draw.row) : EditList<false>());
  GridDependencyWait();  // for logits; the rest was there before
  if (!task.exists) return;
  if (!task.alive) return task.AnswerDead<SmallBatchPolicy>(p);
  held.template Load<kCopies>(p, task.draw.row);
  WaitCluster();  // all blocks have begun
  held.Edit(shared.edited_tiles[Warp()]);
  held.BroadcastMaxima(shared);
  // If few tokens are kept, the sums are needed last.
  if (!few) held.BroadcastSums(weighing, shared);
  ArriveCluster();
  if (few) held.BroadcastSums(weighing, shared);
  WaitCluster();
  Sampler<T, SmallBatchPolicy> sampler(
      p, task.draw,
      {shared.maxima, shared.sums, shared.raw, shared.first_edits});
  const Drawn drawn = sampler.Draw(task, held);
  if (drawn.token != kNotLeader) task.Answer(p, drawn);
}

#endif

// The blocks of a draw are a cluster. If `kCopies`, rows may be copied.
template <typename T, bool kCopies>
__global__ __launch_bounds__(
    SmallBatchPolicy::kThreads,
    SmallBatchPolicy::kMinBlocks) void DrawInClusters(const __grid_constant__
                                                          Params p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) char dynamic[];
  LaunchDependents();
  Clear<SmallBatchPolicy>(p.in.vocab_size);
  // The next barrier publishes the cleared values, before any block adds to
  // them.
  ArriveCluster();
  ReadAndDraw<T, kCopies>(p, *reinterpret_cast<HeldShared*>(dynamic));
#endif
}

LaunchConfig ShapeOf(const Params& p, int num_blocks) {
  return {.grid = dim3(p.in.max_draws * num_blocks),
          .block = dim3(SmallBatchPolicy::kThreads),
          .shared_bytes = sizeof(HeldShared),
          .cluster = num_blocks,
          .dependency = GridDependency::kReadsEarly};
}

// Returns the blocks of a draw, or 0 if a cluster is not profitable.
template <typename T, bool kCopies>
absl::StatusOr<int> NumBlocksOf(const Params& p, const CudaDevice& device) {
  if (!HasClusters(DrawInClusters<T, kCopies>, device) ||
      sizeof(Shared) + sizeof(HeldShared) > size_t(device.max_shared_bytes)) {
    return 0;
  }
  for (const int blocks : kBlockCounts) {
    if (p.in.max_draws * blocks > device.num_sms ||
        p.num_tiles > kWarps * blocks) {
      continue;
    }
    RETURN_IF_ERROR(SetMaxDynamicSharedMemory(DrawInClusters<T, kCopies>,
                                              sizeof(HeldShared)));
    if (MaxActiveClusters(DrawInClusters<T, kCopies>, ShapeOf(p, blocks)) >=
        p.in.max_draws) {
      return blocks;
    }
  }
  return 0;
}

template <typename T, bool kCopies>
absl::StatusOr<bool> LaunchClusters(const Params& p, const CudaDevice& device,
                                    cudaStream_t stream) {
  ASSIGN_OR_RETURN(const int blocks, (NumBlocksOf<T, kCopies>(p, device)));
  if (blocks == 0) return false;
  RETURN_IF_ERROR(
      Launch(DrawInClusters<T, kCopies>, ShapeOf(p, blocks), stream, p));
  return true;
}

}  // namespace

absl::StatusOr<bool> DrawFewTokens(const Params& p, const CudaDevice& device,
                                   cudaStream_t stream) {
  // Making a mask takes longer than the second launch does.
  if (HasMasks(p.in)) return false;
  if (p.in.dtype != DType::kFloat32) {
    return LaunchClusters<uint16_t, false>(p, device, stream);
  }
  return p.in.copies != nullptr
             ? LaunchClusters<float, true>(p, device, stream)
             : LaunchClusters<float, false>(p, device, stream);
}

}  // namespace espalier::cuda_sample
