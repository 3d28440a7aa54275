// Loaders of keys and values for a warp of attention on the tensor cores: spans
// of 16 positions in a ring in shared memory, from the positions of a work tile
// and from the queries' own tables after the shared prefix.
#pragma once

#include "kernels/attention/cuda_attention_parts.cuh"

namespace espalier::cuda_attention {

// ---- Launch configuration ---------------------------------------------------

// Four warps a block: 64 rows are enough that reading keys and values once for
// all of them is cheap against multiplying. Two blocks a multiprocessor, so
// that one copies and multiplies while the other waits at a barrier.
constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kBlocksPerSm = 2;
// Hopper has 227 KiB of shared memory; one ring also fits the 99 KiB of the
// smallest devices. By Little's law 40 KiB must be in flight.
constexpr int kRingBytes = 96 * 1024;
// Positions of one copy of a warp: 16, the depth of a matrix instruction and
// always within one page.
constexpr int kKvTile = 16;

// A warp's part of the ring: stages of one span each.
template <int kHeadDim>
struct Ring {
  static constexpr int kRowBytes = 2 * kHeadDim;
  static constexpr int kKeysBytes = kKvTile * kRowBytes;
  static constexpr int kSpanBytes = 2 * kKeysBytes;  // keys, then values
  static constexpr int kWarpBytes = kRingBytes / kWarps;
  static constexpr int kNumStages = kWarpBytes / kSpanBytes;
};

// Rows of shared memory are as long as all banks or half of them, so the order
// of the 16-byte pieces of a row differs between eight rows.
__device__ __forceinline__ int Swizzle(int row, int piece) {
  return (piece ^ (row & 7)) * 16;
}

// True if the four warps multiply 64 rows together (wgmma). Then the spans of a
// step are one tile: for every 64 dimensions the rows of all its positions,
// each row 128 bytes, swizzled, keys before values.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
constexpr bool kHasWgmma = true;
#else
constexpr bool kHasWgmma = false;
#endif
constexpr int kTilePositions = kWarps * kKvTile;
constexpr int kTileHalfBytes = kTilePositions * 128;
constexpr int kTileAlignment = 1024;

// The layout of a span's keys, and the distance to its values.
struct SpanLayout {
  int row_bytes;
  int half_bytes;  // between groups of 64 dimensions
  int values;

  template <int kHeadDim>
  __device__ static SpanLayout Alone() {
    return {Ring<kHeadDim>::kRowBytes, 128, Ring<kHeadDim>::kKeysBytes};
  }
  template <int kHeadDim>
  __device__ static SpanLayout OfTile() {
    return {128, kTileHalfBytes, kWarps * Ring<kHeadDim>::kKeysBytes};
  }
};

// ---- A warp's copies --------------------------------------------------------

// Copies the spans first, first + step, ... of a work tile's positions to
// shared memory. Page ids are loaded 32 at a time, one batch ahead.
template <typename T, int kHeadDim>
class KvTileLoader {
 public:
  __device__ KvTileLoader(const Params& params, const WorkTile& unit, int first,
                          int step, const SpanLayout& layout)
      : params_(params),
        layout_(layout),
        begin_(unit.item.kv_begin + kKvTile * first),
        step_(kKvTile * step),
        table_(params.inputs.tables +
               int64_t{unit.item.table} * params.inputs.table_stride),
        head_(static_cast<const T*>(params.cache) +
              unit.kv_head * params.head_stride) {
    next_page_ = PageOf(threadIdx.x % 32);
  }

  __device__ int position(int i) const { return begin_ + i * step_; }

  // Starts copying span i, for i = 0, 1, ... in this order. Positions from
  // `limit` on are not read, but zero.
  __device__ __forceinline__ void Start(int i, int limit, uint32_t to) {
    const int lane = threadIdx.x % 32;
    if (i % 32 == 0) {
      page_ = next_page_;
      const int at = position(i + lane);
      slot_ = at - params_.by_page_size.Divide(at) * params_.page_size;
      next_page_ = PageOf(i + 32 + lane);
    }
    const int page = __shfl_sync(~0u, page_, i % 32);
    const int slot = __shfl_sync(~0u, slot_, i % 32);
    // StartSpan (below) is inlined by hand: a call takes a tenth more integer
    // instructions of the whole kernel, and makes prompts 4 % slower.
    const T* const keys =
        head_ + page * params_.page_stride + slot * kHeadDim + 8 * lane;
    const T* const values = keys + params_.values_offset;
    constexpr int kPieces = kHeadDim / 8;  // per row
    constexpr int kRowsAtOnce = 32 / kPieces;
    const int lane_row = lane / kPieces, piece = lane % kPieces;
    const uint32_t lane_to = to + piece / 8 * layout_.half_bytes;
    const int num_rows = limit - position(i) - lane_row;
#pragma unroll
    for (int row = 0; row < kKvTile; row += kRowsAtOnce) {
      const uint32_t at = lane_to + (row + lane_row) * layout_.row_bytes +
                          Swizzle(row + lane_row, piece % 8);
      CpAsyncZfill(at, keys + row * kHeadDim, row < num_rows);
      CpAsyncZfill(at + layout_.values, values + row * kHeadDim,
                   row < num_rows);
    }
  }

 private:
  // Returns a page of the table, which may not be filled yet.
  __device__ int PageOf(int i) const {
    const int page = params_.by_page_size.Divide(position(i));
    return page < params_.inputs.table_stride ? table_[page] : 0;
  }

  const Params& params_;
  const SpanLayout layout_;
  const int begin_, step_;
  const int* const table_;
  const T* const head_;
  int page_ = 0, slot_ = 0, next_page_;
};

// Starts copying a span to shared memory at `to`: keys from `keys` on, and
// their values. Rows from `num_rows` on are not read, but zero.
template <typename T, int kHeadDim>
__device__ __forceinline__ void StartSpan(const T* keys, int64_t values_offset,
                                          int num_rows,
                                          const SpanLayout& layout,
                                          uint32_t to) {
  constexpr int kPieces = kHeadDim / 8;  // per row
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

// Copies the keys and values of the own tables of a warp's queries: the spans
// of the first query, then of the next, each as many as the longest one has.
template <typename T, int kHeadDim>
class OwnSpanLoader {
 public:
  struct Span {
    int query;  // in the work tile
    int position;
  };

  // Call after LoadQueries.
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

  // Starts copying span i, for i = 0, 1, ... in this order. Does nothing past
  // the last.
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
  // One lane per span, from `first` on.
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
  int page_ = 0, slot_ = 0, num_rows_ = 0;  // for this lane's span
};

}  // namespace espalier::cuda_attention
