// Attention over paged keys and values on the device:
// kernels/attention/attention.h for any mixture of prompt chunks, decoding rows
// and shared prefixes, over one work list (cuda_attention_plan.h).
//
// A query is a token of the packed batch; it attends to positions 0 up to its
// own. (A query of an encoder, or of cross-attention, has the last position
// that it attends to.) A work item is some queries against a range of positions
// of one table. Split-KV partial outputs of a query are merged by log-sum-exp.
// A prefix whose pages the rows of a group share is one item for all of them,
// so it is read once: the bytes moved are those of distinct pages.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "absl/status/status.h"
#include "base/cuda_resources.h"
#include "base/dtype.h"
#include "kernels/kv_cache/cuda_kv_cache.h"

namespace espalier {

struct CudaAttentionShape {
  int num_heads = 1;
  int num_kv_heads = 1;
  int head_dim = 64;  // 64 or 128 are fast; any multiple of 8 up to 256 works
  int page_size = 16;
  DType dtype = DType::kBFloat16;
  double scale = 0;  // factor of q k^T; 0: 1 / sqrt(head_dim)
  // As in AttentionOptions (kernels/attention/attention.h).
  float soft_cap = 0;  // cap of scores; 0: none
  int window = 0;      // 0: none. An item reads the positions that any of
                       // its queries sees; planning ignores the window.
  // True to use the SIMT kernel for any shape. Biases need it.
  bool without_tensor_cores = false;
  // Bias of scores by distance, as AttentionOptions::biases. Null: none.
  const float* biases = nullptr;  // [num_heads, 2 * max_distance + 1]  device
  int max_distance = 0;
};

// Some queries against some positions of one table, for every head.
struct CudaAttentionItem {
  int first_query = 0;
  int num_queries = 0;
  int table = 0;
  int kv_begin = 0;
  int kv_end = 0;   // exclusive; clipped to a query's position
  int ordinal = 0;  // among the items of each of its queries
  // 1 if all positions below its first query's were complete at the last
  // barrier, as those of earlier steps are. Then their keys and values may be
  // read before the previous kernel has ended.
  int kv_from_earlier_steps = 0;  // an int: lists are compared as bytes
  // With own tables each query also attends from kv_end up to its own position:
  // the first query through this table, the next through the next one. -1:
  // none. Only for items of a block with more than kAttentionBlockRows / 2
  // rows.
  int own_tables = -1;
};

// A work list and the arrays that it indexes, in device memory.
struct CudaAttentionInputs {
  const CudaAttentionItem* items = nullptr;
  const int* item_counts = nullptr;  // [2]  as in CudaAttentionWork
  // [max_queries + 1]; constant after the planned queries, because merging
  // would spend time on the others.
  const int* partial_indptr = nullptr;
  int max_queries = 0;   // host value: bound of queries
  int max_items = 0;     // host value: bound of all items
  int max_partials = 0;  // host value: bound of all partials
  // Host value: true if an item may have own_tables. Code for them makes long
  // prompts 4 % slower, and long rows of their own 5 %.
  bool has_own_tables = true;
  const int* positions = nullptr;  // [max_queries]
  // [max_queries]  positions that biases count distances from; null:
  // `positions`
  const int* bias_positions = nullptr;
  const int* tables = nullptr;  // [num_tables, table_stride] page ids
  int table_stride = 0;
};

// Returns the scratch bytes of CudaAttention. Scratch needs no clearing.
size_t CudaAttentionScratchBytes(const CudaAttentionInputs& inputs,
                                 const CudaAttentionShape& shape);

// Prepares the kernel of a shape. Call once per process and device, before the
// first launch.
// Errors: kInternal if the device refuses.
absl::Status PrepareCudaAttention(const CudaAttentionShape& shape,
                                  const CudaDevice& device);

// out = softmax(scale * q k^T) v for every query of an item, with the changes
// that shape.soft_cap, shape.window and shape.biases make.
//   q    [max_queries, q_stride >= num_heads * head_dim]  dtype  device
//   out  [max_queries, num_heads * head_dim]              dtype  device
// Accumulates in float32; scores and weights of f32 inputs are float32 too (no
// tf32). Weights of 16-bit inputs are rounded to 16 bits before they are
// multiplied by values. Positions of a query are divided among items as
// planned. A query's result depends on that division and on nothing else of the
// batch. NaN and infinities: as in kernels/attention/attention.h for the
// positions that a query attends to. A NaN or infinite value at a later
// position of the same chunk, or outside the window, may make the result NaN
// too. Enqueues on `stream`: one launch, and a second that merges partial
// results unless max_partials is 0. Never allocates, may be captured.
// REQUIRES: PrepareCudaAttention was called; the work list was planned for this
// shape, or one that differs only in scale, soft cap, window and biases. Work
// list, positions, tables, and the keys and values that earlier steps wrote,
// are complete at the last barrier (GridDependency::kReadsEarly). Errors:
// kInvalidArgument if shapes are impossible or disagree; kInternal if the
// launch fails.
absl::Status CudaAttention(const CudaAttentionInputs& inputs,
                           const CudaAttentionShape& shape, const void* q,
                           int q_stride, const CudaKvCache& cache, int layer,
                           void* out, void* scratch, const CudaDevice& device,
                           cudaStream_t stream);

}  // namespace espalier
