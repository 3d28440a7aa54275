// Attention over paged keys and values on the device: kernels/attention.h for
// any mixture of prompt chunks, decoding rows and shared prefixes, in one
// launch over a work list.
//
// A query is a token of the packed batch; it attends to positions 0 up to its
// own. An item of work is some queries against a run of positions of one
// table; what several items find for a query is merged by log-sum-exp. A run
// of pages that the rows of a group share is one item for all of them, so it
// is read once: bytes moved are those of distinct pages.
//
//   rows of a group:   queries 4 5 6 7, each with a table of its own
//   shared run:        positions 0..127 through query 4's table: items for all
//                      four queries
//   private tails:     positions 128..  one item a query
//
// The work list names tables and positions, not pages: it stays valid while
// tables change, and while lengths grow up to the bound it was planned for.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/cuda.h"
#include "base/page_copy.h"
#include "kernels/packed_matrix.h"

namespace espalier {

// The key/value memory of all layers on the device.
//   [num_layers][num_pages][2: keys, values][num_kv_heads][page_size][head_dim]
// so that the keys of one head of one page are contiguous.
struct CudaKvCache {
  void* data = nullptr;
  DType dtype = DType::kBFloat16;  // kBFloat16, kFloat16 or kFloat32
  int num_layers = 1;
  int num_pages = 0;
  int page_size = 16;  // tokens
  int num_kv_heads = 1;
  int head_dim = 64;

  // Elements.
  int64_t head_stride() const { return int64_t{page_size} * head_dim; }
  int64_t values_offset() const { return num_kv_heads * head_stride(); }
  int64_t page_stride() const { return 2 * values_offset(); }
  int64_t layer_stride() const { return num_pages * page_stride(); }
};

// What attention is asked for, in queries of the packed batch.
struct CudaAttentionRow {
  int first_query = 0;
  int num_queries = 0;    // consecutive positions of one sequence
  int table = 0;          // whose pages hold its keys
  int kv_begin = 0;       // positions before this are covered by runs
  int max_positions = 0;  // the bound: positions stay below this
};
// Positions [kv_begin, kv_end) of `table`, which all the queries attend to.
struct CudaSharedRun {
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
};

// Some queries against some positions of one table, for every head.
struct CudaAttentionItem {
  int first_query = 0;
  int num_queries = 0;
  int table = 0;
  int kv_begin = 0;
  int kv_end = 0;   // exclusive; above a query's position there is nothing
  int ordinal = 0;  // among the items of each of its queries
};

struct CudaAttentionWork {  // host side of a work list
  std::vector<CudaAttentionItem> items;
  std::vector<int> partial_indptr;  // [queries + 1]  items before a query's
};

// Divides the work: chunks fill the device, and few enough that items do not
// exceed `max_items` and partials (items summed over queries) `max_partials`.
// REQUIRES: every query is of one row; the limits are at least those that one
// item a run and query needs.
CudaAttentionWork PlanCudaAttention(std::span<const CudaAttentionRow> rows,
                                    std::span<const CudaSharedRun> runs,
                                    int num_queries,
                                    const CudaAttentionShape& shape,
                                    int max_items, int max_partials,
                                    const CudaDevice& device);

// A work list and what it speaks of, in device memory.
struct CudaAttentionInputs {
  const CudaAttentionItem* items = nullptr;
  const int* num_items = nullptr;       // [1]
  const int* partial_indptr = nullptr;  // [max_queries + 1]
  int max_queries = 0;                  // host value: bound of queries
  int max_items = 0;                    // host value: bound of *num_items
  int max_partials = 0;                 // host value: bound of all partials
  const int* positions = nullptr;       // [max_queries]
  const int* tables = nullptr;          // [num_tables, table_stride] page ids
  int table_stride = 0;
};

// Scratch of CudaAttention; the caller zeroes it once, calls leave it fit.
size_t CudaAttentionScratchBytes(const CudaAttentionInputs& inputs,
                                 const CudaAttentionShape& shape);

// out = softmax(q k^T / sqrt(head_dim)) v for every query that an item names.
//   q    [max_queries, q_stride >= num_heads * head_dim]  dtype  device
//   out  [max_queries, num_heads * head_dim]              dtype  device
// Accumulates in float32, scores and weights of f32 inputs in float32 too (no
// tf32). Positions of a query are divided among items as planned; a query's
// result depends on that division and on nothing else of the batch.
// Enqueues on `stream`; never allocates, may be captured.
absl::Status CudaAttention(const CudaAttentionInputs& inputs,
                           const CudaAttentionShape& shape, const void* q,
                           int q_stride, const CudaKvCache& cache, int layer,
                           void* out, void* scratch, const CudaDevice& device,
                           cudaStream_t stream);

// All tail copies of a step, over all layers, in one launch: the filled slots
// only. No copy's source is another's target.
//   copies      [max_copies]  device
//   num_copies  [1]           device
absl::Status CudaCopyTails(const PageCopy* copies, const int* num_copies,
                           int max_copies, const CudaKvCache& cache,
                           const CudaDevice& device, cudaStream_t stream);

}  // namespace espalier
