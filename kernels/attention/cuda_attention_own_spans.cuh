// What a query goes on with alone behind the run that its item shares, brought
// to the warp that has its rows: 16 positions of one query after the other.
#pragma once

#include "kernels/attention/cuda_attention_tile.cuh"

namespace espalier::cuda_attention {

// Starts copying a span to shared memory at `to`: keys from `keys` on, values
// behind them. Rows from `num_rows` on are not read, but zero.
template <typename T, int kHeadDim>
__device__ __forceinline__ void StartSpan(const T* keys, int64_t values_offset,
                                          int num_rows,
                                          const SpanLayout& layout,
                                          uint32_t to) {
  constexpr int kPieces = kHeadDim / 8;  // of a row
  constexpr int kRowsAtOnce = 32 / kPieces;
  const int lane = threadIdx.x % 32;
  const int lane_row = lane / kPieces, piece = lane % kPieces;
  const T* const lane_keys = keys + 8 * lane;
  const T* const lane_values = lane_keys + values_offset;
  const uint32_t lane_to = to + piece / 8 * layout.half_bytes;
  const int lane_num_rows = num_rows - lane_row;
#pragma unroll
  for (int row = 0; row < kKvTile; row += kRowsAtOnce) {
    const uint32_t at = lane_to + (row + lane_row) * layout.row_bytes +
                        Swizzle(row + lane_row, piece % 8);
    CpAsyncZfill(at, lane_keys + row * kHeadDim, row < lane_num_rows);
    CpAsyncZfill(at + layout.values, lane_values + row * kHeadDim,
                 row < lane_num_rows);
  }
}

// Copies what the queries of a warp's rows go on with alone behind their item:
// spans of the first, then as many of the next, as many as the one with the
// most has.
template <typename T, int kHeadDim>
class OwnSpanLoader {
 public:
  struct Span {
    int query;  // of the unit
    int position;
  };

  // After LoadQueries.
  __device__ OwnSpanLoader(const Params& params, const WorkTile& unit,
                           const Queries& queries, int first_row)
      : params_(params), unit_(unit), queries_(queries) {
    const int end_row = min(first_row + kAttentionWarpRows, unit.num_rows);
    if (unit.item.own_tables < 0 || first_row >= end_row) return;
    first_query_ = params.by_group.Divide(first_row);
    const int end_query = params.by_group.Divide(end_row - 1) + 1;
    int limit = 0;
#pragma unroll 1
    for (int q = first_query_; q < end_query; ++q) {
      limit = max(limit, queries.limits[q]);
    }
    spans_of_query_ = max(limit - unit.item.kv_end + kKvTile - 1, 0) / kKvTile;
    count_ = spans_of_query_ * (end_query - first_query_);
  }

  __device__ int count() const { return count_; }

  __device__ Span SpanOf(int i) const {
    const int query = i / spans_of_query_;
    const int span = i - query * spans_of_query_;
    return {first_query_ + query, unit_.item.kv_end + kKvTile * span};
  }

  // Starts copying the i-th, for i = 0, 1, ... in this order; none behind the
  // last.
  __device__ __forceinline__ void Start(int i, uint32_t to) {
    if (i >= count_) return;
    if (i % 32 == 0) LookUp(i);
    const int slot = __shfl_sync(~0u, slot_, i % 32);
    const int64_t page = __shfl_sync(~0u, page_, i % 32);
    const int num_rows = __shfl_sync(~0u, num_rows_, i % 32);
    const T* const head = static_cast<const T*>(params_.cache) +
                          unit_.kv_head * params_.head_stride;
    StartSpan<T, kHeadDim>(head + page * params_.page_stride + slot * kHeadDim,
                           params_.values_offset, num_rows,
                           SpanLayout::Alone<kHeadDim>(), to);
  }

 private:
  // A lane a span, of `first` and those behind it.
  __device__ void LookUp(int first) {
    num_rows_ = 0;
    const int i = first + threadIdx.x % 32;
    if (i >= count_) return;
    const Span span = SpanOf(i);
    num_rows_ = queries_.limits[span.query] - span.position;
    if (num_rows_ <= 0) return;
    const int page = params_.by_page_size.Divide(span.position);
    const int64_t table = unit_.item.own_tables + span.query;
    page_ = params_.inputs.tables[table * params_.inputs.table_stride + page];
    slot_ = span.position - page * params_.page_size;
  }

  const Params& params_;
  const WorkTile& unit_;
  const Queries& queries_;
  int first_query_ = 0, spans_of_query_ = 0, count_ = 0;
  int page_ = 0, slot_ = 0, num_rows_ = 0;  // of this lane's span
};

}  // namespace espalier::cuda_attention
