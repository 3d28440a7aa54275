// Attention on the tensor cores: bf16 and f16, heads of 64 or 128.
//
// Decoding is bound by reading keys and values: one cold read of distinct pages
// with shared prefixes. On an H200, one layer of 32 heads of 128 on 8 key/value
// heads, including the merge:
//   8 beams on 8192 + 32 positions   34.6 MB  19.5 us  1.8 TB/s
//   1 row of 8192                    33.6 MB  14.7 us  2.3 TB/s
//   64 rows of 500                    131 MB  37.2 us  3.5 TB/s (4.6 at best)
// About 5 us of a call are latencies: three loads that depend on each other,
// instruction fetches, and the merging launch. More than 16 rows are multiplied
// by four warps together (wgmma), in builds for sm_90a: 2048 tokens at 6144
// take an H100 0.64 ms, 376 TFLOP/s. Separate warps (mma.sync), each of which
// reads all keys and values from shared memory, take 0.82 ms.
#include <algorithm>

#include "base/cuda_launch.cuh"
#include "kernels/attention/cuda_attention_launch.cuh"
#include "kernels/attention/cuda_attention_spans.cuh"
#include "kernels/attention/cuda_attention_tile.cuh"

namespace espalier::cuda_attention {
namespace {

// ---- Units ------------------------------------------------------------------

// The division of a work tile among the warps of a block. Up to 16 rows: a
// quarter of the positions each. More rows: a quarter of the rows each, if they
// can be multiplied together (wgmma). Otherwise up to 32 rows: half of the rows
// and half of the positions. Or each warp has its own work tile.
enum class Division { kWarpUnits, kPositions, kHalves, kRows };

struct Shared {
  Queries queries[kWarps];
  float2 weights[kWarps][kAttentionWarpRows];
};
// The smallest devices give a block 99 KiB.
static_assert(kRingBytes + sizeof(Shared) <= 99 * 1024);

// Stores rows of which warps `first`, first + step, ... have a part each in
// shared memory. Eight lanes a row: 16 rows at once.
template <typename T, int kHeadDim>
__device__ __forceinline__ void StoreSumOfWarps(const Params& params,
                                                const WorkTile& unit, int first,
                                                int step, const char* ring,
                                                const Shared& shared) {
  const int tile_row = threadIdx.x / 8, lane = threadIdx.x % 8;
  const int row = kAttentionWarpRows * first + tile_row;
  if (row >= unit.num_rows) return;
  float maximum = -INFINITY;
#pragma unroll 1
  for (int w = first; w < kWarps; w += step) {
    maximum = fmaxf(maximum, shared.weights[w][tile_row].x);
  }
  const float shift = Shift(maximum);
  float4 sums[kHeadDim / 32] = {};
  float sum = 0;
#pragma unroll 2
  for (int w = first; w < kWarps; w += step) {
    const float2 weight = shared.weights[w][tile_row];
    const float factor = Exp2(weight.x - shift);
    sum += weight.y * factor;
#pragma unroll
    for (int i = 0; i < kHeadDim / 32; ++i) {
      const int at =
          tile_row * kHeadDim + ((4 * lane + 32 * i) ^ 8 * (tile_row & 7));
      const float4 part = *reinterpret_cast<const float4*>(
          ring + w * Ring<kHeadDim>::kWarpBytes + at * sizeof(float));
      sums[i].x += part.x * factor;
      sums[i].y += part.y * factor;
      sums[i].z += part.z * factor;
      sums[i].w += part.w * factor;
    }
  }
  const RowTarget<T> target = TargetOf<T>(
      params, unit, shared.queries[threadIdx.x / 32], RowOf(params, unit, row));
  const float scale = 1.0f / sum;
#pragma unroll
  for (int i = 0; i < kHeadDim / 32; ++i) {
    const int dim = 4 * lane + 32 * i;
    const float4& x = sums[i];
    if (target.result != nullptr) {
      StoreFour({x.x * scale, x.y * scale, x.z * scale, x.w * scale},
                target.result + dim);
    } else {
      StoreFour(x, target.partial + dim);
    }
  }
  if (target.result == nullptr && lane == 0) {
    StoreTwo({maximum, sum}, target.partial + kHeadDim);
  }
}

// Starts copying those of the first `count` spans that earlier steps wrote.
// Returns their number.
template <typename T, int kHeadDim>
__device__ __forceinline__ int StartOldSpans(
    const Params& params, const WorkTile& unit, int limit, int count,
    uint32_t to, int stage_bytes, KvTileLoader<T, kHeadDim>& reader) {
  if (!unit.item.kv_from_earlier_steps) return 0;
  const int position = params.inputs.positions[unit.item.first_query];
  int started = 0;
#pragma unroll 1
  while (started < count && reader.position(started) + kKvTile <= position) {
    reader.Start(started, limit, to + started * stage_bytes);
    CpAsyncCommitGroup();
    ++started;
  }
  return started;
}

// Returns the start of the ring, aligned for tiles.
__device__ __forceinline__ char* AlignedRing(char* memory) {
  if constexpr (!kHasWgmma) return memory;
  const uint32_t past = SharedAddress(memory) % kTileAlignment;
  return memory + (kTileAlignment - past) % kTileAlignment;
}

// Attends to the queries' own tables, with rows divided among warps (kRows).
// Each warp works separately in its places of the ring, `stage_bytes` apart.
// (Starting its first copies in the loop over the prefix would make 5,000 beams
// 3 % faster, but the loop harder to read.)
template <bool kHasOptions, typename T, int kHeadDim>
__device__ __forceinline__ void AttendAlone(const Params& params,
                                            const WorkTile& unit,
                                            const Queries& queries,
                                            int first_row, uint32_t places,
                                            int stage_bytes,
                                            RowTile<T, kHeadDim>& tile) {
  constexpr int kStages = Ring<kHeadDim>::kNumStages;
  OwnSpanLoader<T, kHeadDim> alone(params, unit, queries, first_row);
#pragma unroll 1
  for (int i = -kStages; i < alone.count(); ++i) {
    const uint32_t place = places + (i + kStages) % kStages * stage_bytes;
    if (i >= 0) {
      CpAsyncWaitGroup<kStages - 1>();
      __syncwarp();
      const auto [query, position] = alone.SpanOf(i);
      tile.template AttendAlone<kHasOptions>(params, place, position, query,
                                             queries.limits[query]);
      __syncwarp();
    }
    alone.Start(i + kStages, place);
    CpAsyncCommitGroup();
  }
}

// Reads a work tile's positions and attends to them. A step is one span of
// every warp that shares the work tile. In its first work tile a warp waits for
// the previous kernel after it has started the first copies.
template <bool kHasOptions, bool kHasOwnTables, typename T, int kHeadDim>
__device__ __forceinline__ void AttendToUnit(const Params& params,
                                             const WorkTile& unit,
                                             Division division, int first_row,
                                             bool is_first,
                                             RowTile<T, kHeadDim>& tile,
                                             char* ring, Shared& shared) {
  using R = Ring<kHeadDim>;
  constexpr int kStages = R::kNumStages;
  const int warp = threadIdx.x / 32;
  const int num_sharing = division == Division::kWarpUnits ? 1 : kWarps;
  // True if warps multiply spans that other warps copied.
  const bool together =
      division == Division::kRows || division == Division::kHalves;
  const bool of_tile = kHasWgmma && division == Division::kRows;
  KvTileLoader<T, kHeadDim> reader(
      params, unit, num_sharing == 1 ? 0 : warp, num_sharing,
      of_tile ? SpanLayout::OfTile<kHeadDim>() : SpanLayout::Alone<kHeadDim>());
  const int limit = LoadQueries(params, unit, shared.queries[warp]);
  const int begin = together ? unit.item.kv_begin : reader.position(0);
  const int step_positions = kKvTile * num_sharing;
  const int num_steps =
      max(limit - begin + step_positions - 1, 0) / step_positions;
  const uint32_t spans = SharedAddress(ring);
  const uint32_t own_spans =
      spans + warp * (of_tile ? kKvTile * 128 : R::kWarpBytes);
  const int stage_bytes = (of_tile ? kWarps : 1) * R::kSpanBytes;
  // If warps wait for each other, the next copy replaces the previous step,
  // which all have finished by then; else it replaces the step just finished.
  const int num_ahead = together ? kStages - 1 : kStages;
  int num_started = 0;
  if (is_first) {
    num_started = StartOldSpans(params, unit, limit, min(num_ahead, num_steps),
                                own_spans, stage_bytes, reader);
    GridDependencyWait();
  }
  tile.LoadRows(params, unit, first_row);
  tile.template SetLimits<kHasOptions>(params, unit, shared.queries[warp]);
#pragma unroll 1
  for (int step = num_started - num_ahead; step < num_steps; ++step) {
    const int stage = (step + kStages) % kStages * stage_bytes;
    if (step >= 0) {
      if (together) {
        CpAsyncWaitGroup<kStages - 2>();
        if (of_tile) FenceProxyAsync();
        __syncthreads();
      } else {
        CpAsyncWaitGroup<kStages - 1>();
        __syncwarp();
        tile.template Attend<1, 0, kHasOptions>(params, own_spans + stage,
                                                reader.position(step));
        __syncwarp();
      }
    }
    const int next = step + num_ahead;
    if (next < num_steps) {
      reader.Start(next, limit, own_spans + next % kStages * stage_bytes);
    }
    CpAsyncCommitGroup();
    if (!together || step < 0) continue;
    const int position = begin + step * step_positions;
    if (of_tile) {
      tile.template AttendToTile<kHasOptions>(params, spans + stage, position);
      continue;
    }
    if (first_row >= unit.num_rows) continue;
    if (division == Division::kRows) {
      tile.template Attend<kWarps, R::kWarpBytes, kHasOptions>(
          params, spans + stage, position);
    } else {
      const int half = warp / 2 * 2;  // the first of its two spans
      tile.template Attend<2, R::kWarpBytes, kHasOptions>(
          params, spans + half * R::kWarpBytes + stage,
          position + half * kKvTile);
    }
  }
  if (!kHasOwnTables || unit.item.own_tables < 0) return;
  __syncthreads();  // all are done with the last step's stage
  AttendAlone<kHasOptions>(params, unit, shared.queries[warp], first_row,
                           of_tile ? spans + warp * R::kSpanBytes : own_spans,
                           stage_bytes, tile);
}

template <bool kHasOptions, bool kHasOwnTables, typename T, int kHeadDim>
__device__ __forceinline__ void DoUnit(const Params& params,
                                       const WorkTile& unit, Division division,
                                       bool is_first, char* ring,
                                       Shared& shared) {
  const int warp = threadIdx.x / 32;
  const int num_tiles = division == Division::kRows     ? 4
                        : division == Division::kHalves ? 2
                                                        : 1;
  const int first_row = warp % num_tiles * kAttentionWarpRows;
  RowTile<T, kHeadDim> tile;
  AttendToUnit<kHasOptions, kHasOwnTables>(params, unit, division, first_row,
                                           is_first, tile, ring, shared);
  tile.SumOverLanes();
  if (division == Division::kWarpUnits || division == Division::kRows) {
    tile.Store(params, unit, shared.queries[warp], first_row);
  } else {
    __syncthreads();  // all are done with the ring
    tile.StoreShared(
        reinterpret_cast<float*>(ring + warp * Ring<kHeadDim>::kWarpBytes),
        shared.weights[warp]);
    __syncthreads();
#pragma unroll 1
    for (int t = 0; t < num_tiles; ++t) {
      StoreSumOfWarps<T, kHeadDim>(params, unit, t, num_tiles, ring, shared);
    }
  }
  if (division != Division::kWarpUnits) __syncthreads();  // the ring is free
}

// Work tiles are items times key/value heads: first those of a block each, then
// those of a warp each, four to a block.
struct Units {
  int num_of_blocks = 0;
  int num_of_warps = 0;
};

// The work tile of a warp in a round of the grid. Its loaded fields are not
// used here, so that they may arrive while the previous work tile is processed.
// Rounds alternate direction: work tiles are sorted, and shares should be
// equal.
struct Turn {
  CudaAttentionItem item;
  int kv_head = 0;
  bool is_none = false;  // as all that follow
  bool of_block = false;
};
__device__ __forceinline__ Turn FindTurn(const Params& params,
                                         const Units& units, int round) {
  const int grid = gridDim.x, block = blockIdx.x;
  int u = round * grid + (round % 2 == 0 ? block : grid - 1 - block);
  Turn turn;
  int item = params.by_kv_heads.Divide(u);
  if (round == 0) {
    // A guess that is right for blocks, so that the load need not wait for the
    // counts.
    turn.item = params.inputs.items[min(item, params.inputs.max_items - 1)];
  }
  turn.of_block = u < units.num_of_blocks;
  if (!turn.of_block) {
    const int w = (u - units.num_of_blocks) * kWarps + threadIdx.x / 32;
    turn.is_none = w >= units.num_of_warps;
    if (turn.is_none) return turn;
    u = units.num_of_blocks + w;
    item = params.by_kv_heads.Divide(u);
  }
  if (round > 0 || !turn.of_block) turn.item = params.inputs.items[item];
  turn.kv_head = u - item * params.num_kv_heads;
  return turn;
}

__device__ __forceinline__ Division DivisionOf(const Turn& turn,
                                               const WorkTile& unit) {
  if (!turn.of_block) return Division::kWarpUnits;
  if (unit.num_rows <= kAttentionWarpRows) return Division::kPositions;
  if (kHasWgmma || unit.num_rows > 2 * kAttentionWarpRows) {
    return Division::kRows;
  }
  return Division::kHalves;
}

template <typename T, int kHeadDim, bool kHasOptions, bool kHasOwnTables>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    Attend(const __grid_constant__ Params params) {
  extern __shared__ __align__(128) char memory[];
  __shared__ Shared shared;
  char* const ring = AlignedRing(memory);
  LaunchDependents();
  // The work list, positions and tables are there before the forward pass
  // begins.
  const Units units = {params.inputs.item_counts[0] * params.num_kv_heads,
                       params.inputs.item_counts[1] * params.num_kv_heads};
  Turn next = FindTurn(params, units, 0);
  if (next.is_none) GridDependencyWait();
#pragma unroll 1
  for (int round = 1; !next.is_none; ++round) {
    const Turn turn = next;
    next = FindTurn(params, units, round);
    WorkTile unit = {turn.item, turn.kv_head,
                     turn.item.num_queries * params.group};
    if constexpr (!kHasOwnTables) unit.item.own_tables = -1;  // as it is
    if constexpr (kHasOptions) {
      // Skips whole steps of all warps, so that each warp keeps its positions.
      unit.item.kv_begin = UnitBegin<kKvTile * kWarps>(params, unit);
    }
    DoUnit<kHasOptions, kHasOwnTables, T, kHeadDim>(
        params, unit, DivisionOf(turn, unit), round == 1, ring, shared);
  }
}

using Kernel = void (*)(Params);

// The smallest devices could not provide more, but they have no tiles.
int RingBytes(const CudaDevice& device) {
  return kRingBytes + (device.compute_capability >= 90 ? kTileAlignment : 0);
}

template <bool kHasOptions, bool kHasOwnTables>
Kernel KernelOf(DType dtype, int head_dim) {
  const bool wide = head_dim == 128;
  if (dtype == DType::kFloat16) {
    return wide ? Attend<__half, 128, kHasOptions, kHasOwnTables>
                : Attend<__half, 64, kHasOptions, kHasOwnTables>;
  }
  return wide ? Attend<__nv_bfloat16, 128, kHasOptions, kHasOwnTables>
              : Attend<__nv_bfloat16, 64, kHasOptions, kHasOwnTables>;
}
Kernel KernelOf(DType dtype, int head_dim, bool has_options,
                bool has_own_tables) {
  if (has_options) {
    return has_own_tables ? KernelOf<true, true>(dtype, head_dim)
                          : KernelOf<true, false>(dtype, head_dim);
  }
  return has_own_tables ? KernelOf<false, true>(dtype, head_dim)
                        : KernelOf<false, false>(dtype, head_dim);
}

}  // namespace

// Two rings fit on a multiprocessor.
absl::Status PrepareTensorCores(DType dtype, int head_dim, bool has_options,
                                const CudaDevice& device) {
  for (const bool has_own_tables : {false, true}) {
    const Kernel kernel =
        KernelOf(dtype, head_dim, has_options, has_own_tables);
    RETURN_IF_ERROR(SetMaxDynamicSharedMemory(kernel, RingBytes(device)));
    RETURN_IF_CUDA_ERROR(cudaFuncSetAttribute(
        kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
        cudaSharedmemCarveoutMaxShared));
  }
  return absl::OkStatus();
}

absl::Status LaunchTensorCores(DType dtype, const Params& params,
                               const CudaDevice& device, cudaStream_t stream) {
  const int64_t max_units =
      int64_t{params.inputs.max_items} * params.num_kv_heads;
  const unsigned grid = static_cast<unsigned>(
      std::min<int64_t>(kBlocksPerSm * device.num_sms, max_units));
  return Launch(KernelOf(dtype, params.head_dim, params.has_options(),
                         params.inputs.has_own_tables),
                {.grid = grid,
                 .block = kThreads,
                 .shared_bytes = static_cast<size_t>(RingBytes(device)),
                 .dependency = GridDependency::kReadsEarly},
                stream, params);
}

}  // namespace espalier::cuda_attention
