// Definitions that the attention kernels share: a work tile, and the
// destination of its results. An item writes for each of its rows the sum of
// weighted values, the sum of weights and the maximum that they are relative
// to. A second launch merges these split-KV partial outputs
// (cuda_attention_merge.cu). A query of a single item is stored at once.
//
// A kernel this short is bound by latencies, of memory and of fetching code
// that runs once. Loads that depend on each other are few, and only loops that
// multiply are unrolled.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <climits>
#include <cstdint>

#include "kernels/attention/cuda_attention.h"
#include "kernels/attention/cuda_attention_work.h"
#include "kernels/cuda_ptx.cuh"
#include "kernels/cuda_vectors.cuh"

namespace espalier::cuda_attention {

// Division by a launch constant with a multiplication, instead of the twenty
// instructions of a division. For n * divisor < 2^32.
class FastDivmod {
 public:
  FastDivmod() = default;
  explicit FastDivmod(int divisor)
      : multiplier_(static_cast<uint32_t>(((uint64_t{1} << 32) + divisor - 1) /
                                          divisor)) {}
  __device__ __forceinline__ int Divide(int n) const {
    return multiplier_ == 0 ? n : __umulhi(n, multiplier_);
  }

 private:
  uint32_t multiplier_ = 0;  // 2^32 / divisor, rounded up; wraps for 1
};

struct Params {
  CudaAttentionInputs inputs;
  int num_heads = 0;
  int num_kv_heads = 0;
  int group = 0;  // query heads per key/value head
  int head_dim = 0;
  int page_size = 0;
  FastDivmod by_kv_heads, by_group, by_page_size;
  int64_t head_stride = 0;  // in elements of the cache
  int64_t values_offset = 0;
  int64_t page_stride = 0;
  const void* q = nullptr;
  int q_stride = 0;
  const void* cache = nullptr;  // this layer's
  void* out = nullptr;
  float score_scale = 0;  // factor of q k^T, to logarithms to base 2
  // As in CudaAttentionShape, for code that is compiled for them. With a cap
  // score_scale applies to the argument of the tanh, and soft_cap is its
  // factor, to logarithms to base 2.
  float soft_cap = 0;
  int window = 0;
  const float* biases = nullptr;
  float bias_scale = 0;  // to the unit of scaled scores
  int max_distance = 0;
  bool has_options() const {
    return window > 0 || soft_cap > 0 || biases != nullptr;
  }
  // Scratch. A partial is a query's place in partial_indptr plus the ordinal
  // of an item; its row has the sums, then maximum, sum of weights, 0, 0.
  float* partials = nullptr;  // [max_partials, num_heads, head_dim + 4]
};

// An item for one key/value head.
struct WorkTile {
  CudaAttentionItem item;
  int kv_head = 0;
  int num_rows = 0;
};

// The queries of a warp's work tile, in shared memory.
struct Queries {
  // They attend to positions below these, including positions in their own
  // tables.
  int limits[kAttentionBlockRows];
  int first_partials[kAttentionBlockRows];
  bool is_partial[kAttentionBlockRows];  // several items have the query
};

// All lanes of a warp. Returns the largest limit within the item.
__device__ inline int LoadQueries(const Params& params, const WorkTile& unit,
                                  Queries& queries) {
  int limit = 0;
  __syncwarp();
#pragma unroll 1
  for (int i = threadIdx.x % 32; i < unit.item.num_queries; i += 32) {
    const int query = unit.item.first_query + i;
    const int position = params.inputs.positions[query];
    const int first_partial = params.inputs.partial_indptr[query];
    const int last_partial = params.inputs.partial_indptr[query + 1];
    const int end = min(position + 1, unit.item.kv_end);
    queries.limits[i] = unit.item.own_tables < 0 ? end : position + 1;
    queries.first_partials[i] = first_partial;
    queries.is_partial[i] = last_partial > first_partial;
    limit = max(limit, end);
  }
  __syncwarp();
  return __reduce_max_sync(~0u, limit);
}

// Row r of a work tile: a query of it, and a head. Rows beyond the last repeat
// it.
struct Row {
  int query = 0;  // in the work tile
  int head = 0;
};
__device__ inline Row RowOf(const Params& params, const WorkTile& unit,
                            int row) {
  row = min(row, unit.num_rows - 1);
  const int query = params.by_group.Divide(row);
  return {query, unit.kv_head * params.group + row - query * params.group};
}

// Returns the first position in a query's window.
__device__ __forceinline__ int WindowBegin(const Params& params, int query) {
  return params.window > 0 ? params.inputs.positions[query] + 1 - params.window
                           : 0;
}

// All lanes of a warp. Returns the start of a work tile after the positions
// that no query sees in its window. Skips whole runs of kPositions from the
// item's begin, so that the order in which a query's sums are added does not
// depend on the item's other queries.
template <int kPositions>
__device__ inline int UnitBegin(const Params& params, const WorkTile& unit) {
  int first = INT_MAX;
#pragma unroll 1
  for (int i = threadIdx.x % 32; i < unit.item.num_queries; i += 32) {
    first = min(first, WindowBegin(params, unit.item.first_query + i));
  }
  const int hidden = __reduce_min_sync(~0u, first) - unit.item.kv_begin;
  return unit.item.kv_begin + max(hidden, 0) / kPositions * kPositions;
}

// Returns the reference of weights: a maximum of -inf would make them NaN.
__device__ __forceinline__ float Shift(float maximum) {
  return maximum == -INFINITY ? 0.0f : maximum;
}

// Starts a copy of 16 bytes to shared memory, bypassing L1, or fills them with
// zeros.
__device__ __forceinline__ void CpAsyncZfill(uint32_t to, const void* from,
                                             bool copy) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
               "l"(from), "r"(copy ? 16 : 0)
               : "memory");
}

// ---- Rows -------------------------------------------------------------------

template <typename T>
__device__ __forceinline__ T* OutputRow(const Params& params, int query,
                                        int head) {
  return static_cast<T*>(params.out) +
         (int64_t{query} * params.num_heads + head) * params.head_dim;
}
__device__ __forceinline__ float* PartialRow(const Params& params,
                                             int64_t partial, int head) {
  return params.partials +
         (partial * params.num_heads + head) * (params.head_dim + 4);
}

// The destination of a row's sums: the result if this item is the query's only
// one.
template <typename T>
struct RowTarget {
  T* result = nullptr;  // null: `partial`
  float* partial = nullptr;
};
template <typename T>
__device__ __forceinline__ RowTarget<T> TargetOf(const Params& params,
                                                 const WorkTile& unit,
                                                 const Queries& queries,
                                                 const Row& row) {
  RowTarget<T> target;
  if (!queries.is_partial[row.query]) {
    target.result =
        OutputRow<T>(params, unit.item.first_query + row.query, row.head);
  } else {
    target.partial = PartialRow(
        params, queries.first_partials[row.query] + unit.item.ordinal,
        row.head);
  }
  return target;
}

}  // namespace espalier::cuda_attention
