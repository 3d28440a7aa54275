// Attention over paged keys and values on the device:
// kernels/attention/attention.h for any mixture of prompt chunks, decoding rows
// and shared prefixes, over one work list.
//
// A query is a token of the packed batch; it attends to positions 0 up to its
// own. (One of an encoder, or of cross-attention, has the last position of what
// it attends to.) An item of work is some queries against a run of positions of
// one table; what several items find for a query is merged by log-sum-exp. A
// run of pages that the rows of a group share is one item for all of them, so
// it is read once: bytes moved are those of distinct pages.
//
//   rows of a group:   queries 4 5 6 7, each with a table of its own
//   shared run:        positions 0..127 through query 4's table: items for all
//                      four queries
//   private tails:     positions 128..  one item a query
//
// Where undivided runs are enough for the device, as those of hundreds of beams
// are, their items take the private tails with them: then a query has one item
// and nothing is merged. (Writing and reading the partial results of 5,000
// beams on 512 + 8 positions moves as many bytes as their keys and values.)
//
// The work list names tables and positions, not pages: it stays valid while
// tables change, and while lengths grow up to the bound it was planned for.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/cuda_resources.h"
#include "base/dtype.h"
#include "kernels/kv_cache/cuda_kv_cache.h"

namespace espalier {

// What attention is asked for, in queries of the packed batch.
struct CudaAttentionRow {
  int first_query = 0;
  int num_queries = 0;    // consecutive positions of one sequence
  int table = 0;          // whose pages hold its keys
  int kv_begin = 0;       // whole pages before it are covered by runs
  int max_positions = 0;  // the bound: positions stay below this
  // All queries have position max_positions - 1; what is there may have been
  // written in this step. (A number: lists are compared as bytes.)
  int sees_all = 0;
  // Of such a row: all that is there was complete at the last barrier
  // (base/grid_dependency.h).
  int is_complete = 0;
};
// Positions [kv_begin, kv_end) of `table`, which all the queries attend to.
// The tables of the queries' own rows name the same pages there: a run that is
// too short to pay is read through them.
struct CudaSharedPrefix {
  int first_query = 0;
  int num_queries = 0;
  int table = 0;
  int kv_begin = 0;  // multiples of the page size
  int kv_end = 0;
};

struct CudaAttentionShape {
  int num_heads = 1;
  int num_kv_heads = 1;
  int head_dim = 64;  // 64 or 128 are fast; any multiple of 8 up to 256 works
  int page_size = 16;
  DType dtype = DType::kBFloat16;
  double scale = 0;  // of q k^T; 0: 1 / sqrt(head_dim)
  // As AttentionOptions has them (kernels/attention/attention.h).
  float soft_cap = 0;  // of scores; 0: none
  int window = 0;      // 0: none. Of an item is read what its queries see
                       // together; work is planned without it.
  // Of the other shapes' kernel, whatever the shape; which biases need.
  bool without_tensor_cores = false;
  // Added to scores by distance, as AttentionOptions::biases. Null: nothing.
  const float* biases = nullptr;  // [num_heads, 2 * max_distance + 1]  device
  int max_distance = 0;
};

// Some queries against some positions of one table, for every head.
struct CudaAttentionItem {
  int first_query = 0;
  int num_queries = 0;
  int table = 0;
  int kv_begin = 0;
  int kv_end = 0;   // exclusive; above a query's position there is nothing
  int ordinal = 0;  // among the items of each of its queries
  // Whether all positions below its first query's were complete at the last
  // barrier, as earlier steps' are: then their keys and values may be read
  // before the previous kernel has ended.
  int kv_from_earlier_steps = 0;  // a number: lists are compared as bytes
  // Where each query goes on alone after kv_end, up to its own position: the
  // first one's table, the next one's is the next. -1: no query does. Of items
  // of a block that have more rows than kAttentionBlockRows / 2.
  int own_tables = -1;
};

struct CudaAttentionWork {  // host side of a work list
  std::vector<CudaAttentionItem> items;
  // How many items a block each works on, and after these a warp each.
  std::array<int, 2> item_counts = {0, 0};
  // [queries + 1]  partial results before a query's: of a query of one item
  // none, of others one an item.
  std::vector<int> partial_indptr;
  bool has_own_tables = false;  // some item has; never without runs
};

// Divides the work: chunks fill the device, and few enough that items do not
// exceed `max_items` and partial results `max_partials`.
// How a query's positions are divided follows, in f32, from its own row and
// runs alone; in bf16 and f16 which runs pay and the length of a chunk, a power
// of two, are also chosen by how much work the batch has.
// REQUIRES: every query is of one row at most; of its positions below
// max_positions, each before kv_begin is in one run and none after; what is
// below the first query of a row, and what runs cover, was complete at the last
// barrier (base/grid_dependency.h); the limits are at least what one item for
// every query of every run and row needs.
CudaAttentionWork PlanCudaAttention(std::span<const CudaAttentionRow> rows,
                                    std::span<const CudaSharedPrefix> runs,
                                    int num_queries,
                                    const CudaAttentionShape& shape,
                                    int max_items, int max_partials,
                                    const CudaDevice& device);

// A work list and what it speaks of, in device memory.
struct CudaAttentionInputs {
  const CudaAttentionItem* items = nullptr;
  const int* item_counts = nullptr;  // [2]  as in CudaAttentionWork
  // [max_queries + 1]; after the planned queries' all the same as their last,
  // or merging takes time for rows that were not asked for.
  const int* partial_indptr = nullptr;
  int max_queries = 0;   // host value: bound of queries
  int max_items = 0;     // host value: bound of all items
  int max_partials = 0;  // host value: bound of all partials
  // Host value: whether an item may have own_tables. Without, the kernel lacks
  // what they take, by which long prompts take 4 % longer, and long rows of
  // their own 5 %.
  bool has_own_tables = true;
  const int* positions = nullptr;  // [max_queries]
  // [max_queries]  from which biases count distances; null: `positions`
  const int* bias_positions = nullptr;
  const int* tables = nullptr;  // [num_tables, table_stride] page ids
  int table_stride = 0;
};

// Scratch of CudaAttention, in any state.
size_t CudaAttentionScratchBytes(const CudaAttentionInputs& inputs,
                                 const CudaAttentionShape& shape);

// Readies the kernel of such a shape: once a process and device, before the
// first call below. Errors: kInternal if the device refuses.
absl::Status PrepareCudaAttention(const CudaAttentionShape& shape,
                                  const CudaDevice& device);

// out = softmax(scale * q k^T) v for every query that an item names, as
// shape.soft_cap, shape.window and shape.biases change it.
//   q    [max_queries, q_stride >= num_heads * head_dim]  dtype  device
//   out  [max_queries, num_heads * head_dim]              dtype  device
// Accumulates in float32, scores and weights of f32 inputs in float32 too (no
// tf32); weights of 16-bit inputs are rounded to 16 bits before they meet the
// values. Positions of a query are divided among items as planned; a query's
// result depends on that division and on nothing else of the batch.
// NaN and infinities: as kernels/attention/attention.h has it for the positions
// that a query attends to; a NaN or infinite value at a later position of the
// same chunk, or at one that a window hides, may make it NaN too. Enqueues on
// `stream`: one launch, and a second that merges partial results unless
// max_partials says that there are none. Never allocates, may be captured.
// REQUIRES: PrepareCudaAttention was called; the work list was planned for this
// shape, or one that differs in its scale, soft cap, window and biases alone.
// Work
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
