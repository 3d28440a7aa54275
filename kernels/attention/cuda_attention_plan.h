// PlanCudaAttention: divides the attention of a batch into the work list of
// cuda_attention.h. Plain C++ on the host.
//
//   rows of a group:   queries 4 5 6 7, each with its own table
//   shared prefix:     positions 0..127 through query 4's table: items for all
//                      four queries
//   private tails:     positions 128..  one item per query
//
// If undivided prefixes fill the device, as with hundreds of beams, their items
// include the private tails. Then a query has one item and nothing is merged.
// (Writing and reading the partial results of 5,000 beams on 512 + 8 positions
// moves as many bytes as their keys and values.)
//
// The work list names tables and positions, not pages: it stays valid while
// tables change, and while lengths grow up to the bound it was planned for.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "base/cuda_resources.h"
#include "kernels/attention/cuda_attention.h"

namespace espalier {

// A row to plan attention for, in queries of the packed batch.
struct CudaAttentionRow {
  int first_query = 0;
  int num_queries = 0;    // consecutive positions of one sequence
  int table = 0;          // table of the pages with its keys
  int kv_begin = 0;       // whole pages before it are in shared prefixes
  int max_positions = 0;  // the bound: positions stay below this
  // 1 if all queries have position max_positions - 1, whose keys may have been
  // written in this step. (An int, as lists are compared as bytes.)
  int sees_all = 0;
  // With sees_all: 1 if all keys were complete at the last barrier
  // (base/grid_dependency.h).
  int is_complete = 0;
};
// Positions [kv_begin, kv_end) of `table`, which all the queries attend to. The
// tables of the queries' own rows name the same pages there, so that a prefix
// too short for items of its own is read through them.
struct CudaSharedPrefix {
  int first_query = 0;
  int num_queries = 0;
  int table = 0;
  int kv_begin = 0;  // multiples of the page size
  int kv_end = 0;
};

struct CudaAttentionWork {  // host side of a work list
  std::vector<CudaAttentionItem> items;
  // Items that take a block each, and after them items that take a warp each.
  std::array<int, 2> item_counts = {0, 0};
  // [queries + 1]  partial results before a query's: none for a query of one
  // item, one per item for others.
  std::vector<int> partial_indptr;
  bool has_own_tables = false;  // any item; only with shared prefixes
};

// Divides the work into enough chunks to fill the device, within `max_items`
// items and `max_partials` partial results. In f32 the division of a query's
// positions depends on its own row and shared prefixes only. In bf16 and f16
// the amount of work in the batch also decides which prefixes get items and the
// length of a chunk, a power of two.
// REQUIRES: every query is in at most one row. Of its positions below
// max_positions, each before kv_begin is in one shared prefix and none after.
// Positions below the first query of a row, and in shared prefixes, were
// complete at the last barrier (base/grid_dependency.h). The limits allow at
// least one item for every query of every prefix and row.
CudaAttentionWork PlanCudaAttention(std::span<const CudaAttentionRow> rows,
                                    std::span<const CudaSharedPrefix> runs,
                                    int num_queries,
                                    const CudaAttentionShape& shape,
                                    int max_items, int max_partials,
                                    const CudaDevice& device);

}  // namespace espalier
