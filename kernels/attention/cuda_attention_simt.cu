// Attention without tensor cores. Supports every shape; sliding windows and
// soft caps are compiled separately.
#include <algorithm>

#include "base/cuda_launch.cuh"
#include "base/status.h"
#include "kernels/attention/cuda_attention_launch.cuh"
#include "kernels/cuda_element_type.cuh"

namespace espalier::cuda_attention {
namespace {

// A block processes 32 positions at a time, one per lane, for 8 rows, two per
// warp; then its threads process dimensions. The next 32 positions are copied
// meanwhile if shared memory has room for both.
constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kBlocksPerSm = 3;
constexpr int kTileRows = kAttentionAnyRows;
constexpr int kRowsPerWarp = kTileRows / kWarps;
constexpr int kPositions = 32;
constexpr int kMaxHeadDim = 256;
constexpr int kDimsPerThread = kMaxHeadDim / kThreads;
// Padding that spreads lanes with consecutive keys, 16 bytes each, over all
// banks.
constexpr int kKeyPadding = 16;  // bytes

struct Shared {
  float q[kTileRows][kMaxHeadDim];
  float weights[kTileRows][kPositions];
  float factors[kTileRows];
  float sums[kTileRows];
  float maxima[kTileRows];
  Queries queries[kWarps];
};

__device__ __forceinline__ float ToFloat(float x) { return x; }
__device__ __forceinline__ float ToFloat(__half x) { return __half2float(x); }
__device__ __forceinline__ float ToFloat(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

// The layout of 32 keys, and then their values, in shared memory.
template <typename T>
struct Stage {
  int row = 0;  // elements from one position to the next
  __host__ __device__ explicit Stage(int head_dim)
      : row(head_dim + kKeyPadding / static_cast<int>(sizeof(T))) {}
  __host__ __device__ int values() const { return kPositions * row; }
  __host__ __device__ int size() const { return 2 * values(); }
};

// Copies a work tile's positions to shared memory, 32 at a time. Page ids are
// loaded one batch ahead.
template <typename T>
class Reader {
 public:
  __device__ Reader(const Params& params, const WorkTile& unit, int begin,
                    int limit)
      : params_(params),
        limit_(limit),
        begin_(begin + static_cast<int>(threadIdx.x) % 32),
        table_(params.inputs.tables +
               int64_t{unit.item.table} * params.inputs.table_stride),
        head_(static_cast<const T*>(params.cache) +
              unit.kv_head * params.head_stride) {
    next_page_ = PageOf(begin_);
  }

  // Starts copying the step-th 32, for step = 0, 1, ... in this order.
  // Positions from the limit on are zero.
  __device__ void Start(int step, T* to) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const Stage<T> stage(params_.head_dim);
    constexpr int kPiece = 16 / sizeof(T);
    const int position = begin_ + step * kPositions;
    const int page = params_.by_page_size.Divide(position);
    const int64_t offset =
        next_page_ * params_.page_stride +
        (position - page * params_.page_size) * params_.head_dim;
    next_page_ = PageOf(position + kPositions);
#pragma unroll
    for (int i = 0; i < kPositions / kWarps; ++i) {
      const int row = warp + i * kWarps;
      const T* const key = head_ + __shfl_sync(~0u, offset, row);
      const bool copy = position - lane + row < limit_;
      for (int at = kPiece * lane; at < params_.head_dim; at += 32 * kPiece) {
        T* const to_key = to + row * stage.row + at;
        CpAsyncZfill(SharedAddress(to_key), key + at, copy);
        CpAsyncZfill(SharedAddress(to_key + stage.values()),
                     key + params_.values_offset + at, copy);
      }
    }
  }

 private:
  __device__ int PageOf(int position) const {
    return position < limit_ ? table_[params_.by_page_size.Divide(position)]
                             : 0;
  }

  const Params& params_;
  const int limit_, begin_;  // begin: this lane's first position
  const int* const table_;
  const T* const head_;
  int next_page_;
};

template <typename T>
__device__ void LoadRows(const Params& params, const WorkTile& unit,
                         int first_row, Shared& shared) {
  const int lane = threadIdx.x % 32;
  for (int r = threadIdx.x / 32; r < kTileRows; r += kWarps) {
    const Row row = RowOf(params, unit, first_row + r);
    const T* const q =
        static_cast<const T*>(params.q) +
        int64_t{unit.item.first_query + row.query} * params.q_stride +
        row.head * params.head_dim;
    for (int dim = lane; dim < params.head_dim; dim += 32) {
      shared.q[r][dim] = ToFloat(q[dim]);
    }
  }
}

// q k^T of a warp's rows and this lane's position.
template <typename T>
__device__ __forceinline__ void Score(const Params& params,
                                      const float (*q)[kMaxHeadDim],
                                      const T* keys,
                                      float (&scores)[kRowsPerWarp]) {
  const T* const key = keys + threadIdx.x % 32 * Stage<T>(params.head_dim).row;
  // Four sums shorten the chains of roundings and latencies.
  float4 sums[kRowsPerWarp] = {};
#pragma unroll 4
  for (int dim = 0; dim < params.head_dim; dim += 4) {
    const float4 b = LoadFour(key + dim);
#pragma unroll
    for (int r = 0; r < kRowsPerWarp; ++r) {
      const float4 a = LoadFour(&q[r][dim]);
      sums[r].x = fmaf(a.x, b.x, sums[r].x);
      sums[r].y = fmaf(a.y, b.y, sums[r].y);
      sums[r].z = fmaf(a.z, b.z, sums[r].z);
      sums[r].w = fmaf(a.w, b.w, sums[r].w);
    }
  }
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) {
    scores[r] = (sums[r].x + sums[r].y) + (sums[r].z + sums[r].w);
  }
}

// A warp's rows: their limits, and the maximum and sum of their weights so far.
// All lanes have the same values.
struct WarpRows {
  int limits[kRowsPerWarp];
  // With kHasOptions: the begin of their windows; the biases of their heads, if
  // any, at distance 0, and the positions that distances count from.
  int begins[kRowsPerWarp];
  const float* biases[kRowsPerWarp];
  int bias_positions[kRowsPerWarp];
  float maxima[kRowsPerWarp];
  float sums[kRowsPerWarp];
};

// The weights of a warp's rows at 32 positions.
template <bool kHasOptions, typename T>
__device__ __forceinline__ void UpdateSoftmax(const Params& params,
                                              int position, const T* keys,
                                              WarpRows& rows, Shared& shared) {
  const int lane = threadIdx.x % 32;
  const int first = threadIdx.x / 32 * kRowsPerWarp;
  float scores[kRowsPerWarp];
  Score(params, shared.q + first, keys, scores);
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) {
    bool is_seen = position + lane < rows.limits[r];
    float score = scores[r] * params.score_scale;
    if constexpr (kHasOptions) {
      is_seen &= position + lane >= rows.begins[r];
      if (params.biases != nullptr) {
        const int distance = position + lane - rows.bias_positions[r];
        score += params.bias_scale *
                 rows.biases[r][max(min(distance, params.max_distance),
                                    -params.max_distance)];
      }
      if (params.soft_cap > 0) score = params.soft_cap * tanhf(score);
    }
    if (!is_seen) score = -INFINITY;
    const float maximum = fmaxf(rows.maxima[r], WarpMax(score));
    const float shift = Shift(maximum);
    const float weight = exp2f(score - shift);
    const float factor = exp2f(rows.maxima[r] - shift);
    rows.maxima[r] = maximum;
    rows.sums[r] = rows.sums[r] * factor + WarpSum(weight);
    shared.weights[first + r][lane] = weight;
    if (lane == 0) shared.factors[first + r] = factor;
  }
}

using Sums = float[kTileRows][kDimsPerThread];

// sums = sums * factors + weights * values, for this thread's dimensions.
template <typename T>
__device__ void AddValues(const Params& params, const T* values,
                          const Shared& shared, Sums& sums) {
  const int row = Stage<T>(params.head_dim).row;
#pragma unroll
  for (int d = 0; d < kDimsPerThread; ++d) {
    const int dim = threadIdx.x + d * kThreads;
    if (dim >= params.head_dim) break;
#pragma unroll
    for (int r = 0; r < kTileRows; ++r) sums[r][d] *= shared.factors[r];
#pragma unroll 2
    for (int p = 0; p < kPositions; p += 4) {
      const T* const value = values + p * row + dim;
      const float x[4] = {ToFloat(value[0]), ToFloat(value[row]),
                          ToFloat(value[2 * row]), ToFloat(value[3 * row])};
#pragma unroll
      for (int r = 0; r < kTileRows; ++r) {
        const float4 weight = LoadFour(&shared.weights[r][p]);
        float& sum = sums[r][d];
        sum = fmaf(weight.x, x[0], sum);
        sum = fmaf(weight.y, x[1], sum);
        sum = fmaf(weight.z, x[2], sum);
        sum = fmaf(weight.w, x[3], sum);
      }
    }
  }
}

template <typename T>
__device__ void StoreRows(const Params& params, const WorkTile& unit,
                          int first_row, Shared& shared, const Sums& sums) {
  // Goes through shared memory, so that a warp stores a row.
  __syncthreads();
#pragma unroll
  for (int r = 0; r < kTileRows; ++r) {
#pragma unroll
    for (int d = 0; d < kDimsPerThread; ++d) {
      shared.q[r][threadIdx.x + d * kThreads] = sums[r][d];
    }
  }
  __syncthreads();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int r = warp; r < kTileRows; r += kWarps) {
    if (first_row + r >= unit.num_rows) break;
    const RowTarget<T> target = TargetOf<T>(params, unit, shared.queries[warp],
                                            RowOf(params, unit, first_row + r));
    const float scale = 1.0f / shared.sums[r];
    for (int dim = 2 * lane; dim < params.head_dim; dim += 64) {
      const float2 x = *reinterpret_cast<const float2*>(&shared.q[r][dim]);
      if (target.result != nullptr) {
        StoreTwo({x.x * scale, x.y * scale}, target.result + dim);
      } else {
        StoreTwo({x.x, x.y}, target.partial + dim);
      }
    }
    if (target.result == nullptr && lane == 0) {
      StoreTwo({shared.maxima[r], shared.sums[r]},
               target.partial + params.head_dim);
    }
  }
}

template <bool kHasOptions, typename T>
__device__ void AttendTile(const Params& params, const WorkTile& unit,
                           int begin, int limit, int first_row, int num_stages,
                           T* ring, Shared& shared) {
  __syncthreads();  // the last tile is stored
  const Stage<T> stage(params.head_dim);
  Reader<T> reader(params, unit, begin, limit);
  const auto start = [&](int step) {
    if (begin + step * kPositions < limit) {
      reader.Start(step, ring + step % num_stages * stage.size());
    }
    CpAsyncCommitGroup();
  };
  start(0);
  LoadRows<T>(params, unit, first_row, shared);
  const int warp = threadIdx.x / 32;
  WarpRows rows;
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) {
    const int row = first_row + warp * kRowsPerWarp + r;
    const auto [query, head] = RowOf(params, unit, row);
    rows.limits[r] = shared.queries[warp].limits[query];
    if constexpr (kHasOptions) {
      rows.begins[r] = WindowBegin(params, unit.item.first_query + query);
      rows.bias_positions[r] =
          params.inputs.bias_positions[unit.item.first_query + query];
      rows.biases[r] = params.biases + params.max_distance +
                       int64_t{head} * (2 * params.max_distance + 1);
    }
    rows.maxima[r] = -INFINITY;
    rows.sums[r] = 0;
  }
  Sums sums = {};
#pragma unroll 1
  for (int step = 0; begin + step * kPositions < limit; ++step) {
    if (num_stages > 1) {
      start(step + 1);
      CpAsyncWaitGroup<1>();
    } else {
      CpAsyncWaitGroup<0>();
    }
    __syncthreads();
    const T* const keys = ring + step % num_stages * stage.size();
    UpdateSoftmax<kHasOptions>(params, begin + step * kPositions, keys, rows,
                               shared);
    __syncthreads();
    AddValues<T>(params, keys + stage.values(), shared, sums);
    __syncthreads();
    if (num_stages == 1) start(step + 1);
  }
  if (threadIdx.x % 32 == 0) {
#pragma unroll
    for (int r = 0; r < kRowsPerWarp; ++r) {
      shared.maxima[warp * kRowsPerWarp + r] = rows.maxima[r];
      shared.sums[warp * kRowsPerWarp + r] = rows.sums[r];
    }
  }
  StoreRows<T>(params, unit, first_row, shared, sums);
}

template <typename T, bool kHasOptions>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    AttendAny(const __grid_constant__ Params params, int num_stages) {
  extern __shared__ __align__(16) char ring[];
  __shared__ __align__(16) Shared shared;
  LaunchDependents();
  GridDependencyWait();
  const int num_units =
      (params.inputs.item_counts[0] + params.inputs.item_counts[1]) *
      params.num_kv_heads;
#pragma unroll 1
  for (int u = blockIdx.x; u < num_units; u += gridDim.x) {
    const int item = params.by_kv_heads.Divide(u);
    WorkTile unit;
    unit.item = params.inputs.items[item];
    unit.kv_head = u - item * params.num_kv_heads;
    unit.num_rows = unit.item.num_queries * params.group;
    const int limit =
        LoadQueries(params, unit, shared.queries[threadIdx.x / 32]);
    const int begin =
        kHasOptions ? UnitBegin<kPositions>(params, unit) : unit.item.kv_begin;
#pragma unroll 1
    for (int row = 0; row < unit.num_rows; row += kTileRows) {
      AttendTile<kHasOptions>(params, unit, begin, limit, row, num_stages,
                              reinterpret_cast<T*>(ring), shared);
    }
    __syncthreads();
  }
}

constexpr int kStaticBytes = sizeof(Shared);

template <typename T>
absl::Status LaunchTyped(const Params& params, const CudaDevice& device,
                         cudaStream_t stream) {
  const int stage_bytes =
      Stage<T>(params.head_dim).size() * static_cast<int>(sizeof(T));
  const int num_stages =
      kStaticBytes + 2 * stage_bytes <= device.max_shared_bytes ? 2 : 1;
  const int64_t max_units =
      int64_t{params.inputs.max_items} * params.num_kv_heads;
  const unsigned grid = static_cast<unsigned>(
      std::min<int64_t>(kBlocksPerSm * device.num_sms, max_units));
  return Launch(params.has_options() ? AttendAny<T, true> : AttendAny<T, false>,
                {.grid = grid,
                 .block = kThreads,
                 .shared_bytes = static_cast<size_t>(num_stages * stage_bytes)},
                stream, params, num_stages);
}

}  // namespace

absl::Status PrepareSimt(DType dtype, const CudaDevice& device) {
  const int bytes = device.max_shared_bytes - kStaticBytes;
  return WithType(dtype, [&]<typename T>(T) {
    RETURN_IF_ERROR(SetMaxDynamicSharedMemory(AttendAny<T, true>, bytes));
    return SetMaxDynamicSharedMemory(AttendAny<T, false>, bytes);
  });
}

absl::Status LaunchSimt(DType dtype, const Params& params,
                        const CudaDevice& device, cudaStream_t stream) {
  return WithType(dtype, [&]<typename T>(T) {
    return LaunchTyped<T>(params, device, stream);
  });
}

}  // namespace espalier::cuda_attention
