#include "kernels/attention/cuda_attention_plan.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "base/ceil_div.h"
#include "base/check.h"
#include "kernels/attention/cuda_attention_work.h"

namespace espalier {
namespace {

// Measured on an H200, in units of the time in which a block attends to a
// position of up to 16 rows (16 ns): a second launch to merge, another round of
// blocks, and a position that comes from memory while all blocks read.
constexpr int kMergeCost = 192;
constexpr int kRoundCost = 128;
constexpr int kMemoryCost = 2;
// The cost of a position by rows, in quarters: up to 16, up to 32, more.
constexpr int kCosts[] = {4, 5, 7};
// A chunk is long enough to be worth a block and a row to merge.
constexpr int kMinChunk = 128;
constexpr int kMinChunkOfLong = 256;
constexpr int kLong = 1024;
// Without tensor cores: the least chunk, the maximum number of chunks of a row,
// and the number of queries in rows that fill the device by themselves.
constexpr int kMinChunkAny = 128;
constexpr int kMaxChunksAny = 16;
constexpr int kManyQueriesAny = 32;
constexpr int kLongRunAny = 256;
// Positions that a single warp reads without delaying the rest.
constexpr int kWarpPositions = 64;
// Positions of a single warp if there are enough rows that warps fill the
// device.
constexpr int kWarpPositionsOfMany = 512;
// A query's private tail of at most kAlonePositions joins the item of its
// shared prefix, if such prefixes give at least kEighthsOfSms / 8 of the
// multiprocessors a block. On an H100 that took 0.5 to 0.97 of the time of
// separate items, the less the shorter the tails.
constexpr int kAlonePositions = 128;
constexpr int kEighthsOfSms = 3;
constexpr int kBlocksPerSm = 2;
constexpr int kWarpsPerBlock = 4;

// Some queries against positions [kv_begin, kv_end) of a table: first a shared
// prefix or a row's own positions, later tiles of them that fit in an item.
struct Piece {
  int first_query = 0;
  int num_queries = 0;
  int table = 0;
  int kv_begin = 0;
  int kv_end = 0;
  bool is_own = false;
  bool sees_all = false;          // as CudaAttentionRow's
  bool is_complete = false;       // the same
  bool is_multi_query = false;    // a tile of a row of many queries
  int kv_from_earlier_steps = 0;  // as CudaAttentionItem's
  int own_tables = -1;            // the same
  int own_positions = 0;          // total in own tables, over its queries

  int length() const { return std::max(kv_end - kv_begin, 1); }
};

using RowOfQuery = std::vector<const CudaAttentionRow*>;

RowOfQuery RowsByQuery(std::span<const CudaAttentionRow> rows,
                       int num_queries) {
  RowOfQuery result(num_queries);
  for (const CudaAttentionRow& row : rows) {
    CHECK_LE(row.first_query + row.num_queries, num_queries);
    std::fill_n(result.begin() + row.first_query, row.num_queries, &row);
  }
  return result;
}

// True if each row that the prefix covers continues at its end, so that the
// prefix can be read as a part of the rows.
bool EndsAtRows(const CudaSharedPrefix& run, const RowOfQuery& rows) {
  for (int q = run.first_query; q < run.first_query + run.num_queries; ++q) {
    if (rows[q] == nullptr || rows[q]->kv_begin != run.kv_end) return false;
  }
  return true;
}

// Returns the cost of a position that `num_rows` rows attend to.
int CostOf(int num_rows) {
  return kCosts[num_rows <= kAttentionWarpRows       ? 0
                : num_rows <= 2 * kAttentionWarpRows ? 1
                                                     : 2];
}

// Reading a prefix as a part of each row leaves nothing to merge, and all rows
// but the first find it in the cache. But a block of each row takes the time
// for it, in every round of blocks that the rows make.
class PrefixCostModel {
 public:
  PrefixCostModel(std::span<const CudaAttentionRow> rows,
                  std::span<const CudaSharedPrefix> runs,
                  const CudaAttentionShape& shape, const CudaDevice& device)
      : shape_(shape) {
    const int num_blocks = kBlocksPerSm * device.num_sms;
    rounds_ =
        CeilDiv(static_cast<int>(rows.size()) * shape.num_kv_heads, num_blocks);
    for (const CudaSharedPrefix& run : runs) reading_ += Length(run);
    reading_ = kMemoryCost * reading_ * shape.num_kv_heads / num_blocks;
  }

  // True if `run` should have its own items; its rows have `own_length` more
  // positions.
  bool IsProfitable(const CudaSharedPrefix& run, int own_length) const {
    if (run.num_queries == 1) return false;
    // The division of float32 depends on its own lengths only.
    if (!AttentionUsesTensorCores(shape_)) return Length(run) > kLongRunAny;
    const int64_t apart = rounds_ * (Length(run) + own_length);
    const int64_t chunk = std::min(Length(run), kMinChunk) *
                          CostOf(run.num_queries * HeadsPerKvHead(shape_)) /
                          CostOf(1);
    const int64_t shared = std::max(chunk, reading_);
    const int64_t both =
        rounds_ == 1 ? std::max<int64_t>(shared, own_length)
                     : shared + kRoundCost + kMemoryCost * rounds_ * own_length;
    return apart > both + kMergeCost;
  }

 private:
  static int Length(const CudaSharedPrefix& run) {
    return run.kv_end - run.kv_begin;
  }

  const CudaAttentionShape shape_;
  int64_t rounds_ = 1;
  int64_t reading_ = 0;  // the least that reading all runs takes
};

// Lists the profitable prefixes, widest first, then the rows' own positions.
std::vector<Piece> ListPieces(std::span<const CudaAttentionRow> rows,
                              std::span<const CudaSharedPrefix> runs,
                              int num_queries, const CudaAttentionShape& shape,
                              const CudaDevice& device) {
  const RowOfQuery row_of_query = RowsByQuery(rows, num_queries);
  std::vector<int> kv_begins(num_queries);
  for (int q = 0; q < num_queries; ++q) {
    if (row_of_query[q] != nullptr) kv_begins[q] = row_of_query[q]->kv_begin;
  }
  const PrefixCostModel prices(rows, runs, shape, device);
  std::vector<Piece> pieces;
  for (const CudaSharedPrefix& run : runs) {
    const CudaAttentionRow* const row = row_of_query[run.first_query];
    if (EndsAtRows(run, row_of_query) &&
        !prices.IsProfitable(run, row->max_positions - row->kv_begin)) {
      std::fill_n(kv_begins.begin() + run.first_query, run.num_queries,
                  run.kv_begin);
    } else {
      pieces.push_back({run.first_query, run.num_queries, run.table,
                        run.kv_begin, run.kv_end});
    }
  }
  // Queries that share the most come first, so that they stay together when
  // some of them share more.
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const Piece& a, const Piece& b) {
                     return a.num_queries > b.num_queries;
                   });
  for (const CudaAttentionRow& row : rows) {
    if (row.num_queries == 0) continue;
    pieces.push_back({row.first_query, row.num_queries, row.table,
                      kv_begins[row.first_query], row.max_positions, true,
                      row.sees_all != 0, row.is_complete != 0});
  }
  return pieces;
}

// Appends tiles of equal numbers of queries. A row's last query is at most at
// position max_positions - 1, the one before it at most one lower, and so on.
void AppendTiles(const Piece& piece, int max_queries,
                 std::vector<Piece>& tiles) {
  const int num_tiles = CeilDiv(piece.num_queries, max_queries);
  for (int t = 0; t < num_tiles; ++t) {
    const int begin = piece.num_queries * t / num_tiles;
    const int end = piece.num_queries * (t + 1) / num_tiles;
    Piece tile = piece;
    // A row's queries write their positions in this step. These are below the
    // first query of its later tiles, but not of its first tile.
    tile.kv_from_earlier_steps =
        piece.sees_all ? piece.is_complete : !piece.is_own || begin == 0;
    tile.first_query += begin;
    tile.num_queries = end - begin;
    if (piece.is_own) {
      if (!piece.sees_all) tile.kv_end -= piece.num_queries - end;
      tile.is_multi_query = piece.num_queries >= kManyQueriesAny;
    }
    tiles.push_back(tile);
  }
}

// Returns the index in `tiles` of each query's only own tile, if one shared
// prefix precedes it and nothing else, so that both can be one item; else -1.
std::vector<int> TilesAfterOneRun(const std::vector<Piece>& tiles,
                                  int num_queries) {
  std::vector<int> own(num_queries, -1);
  std::vector<int> num_runs(num_queries, 0);
  for (size_t t = 0; t < tiles.size(); ++t) {
    const Piece& tile = tiles[t];
    const int end = tile.first_query + tile.num_queries;
    for (int q = tile.first_query; q < end; ++q) {
      if (!tile.is_own) {
        ++num_runs[q];
      } else if (tile.num_queries == 1 && !tile.sees_all &&
                 tile.length() <= kAlonePositions) {
        own[q] = static_cast<int>(t);
      }
    }
  }
  for (int q = 0; q < num_queries; ++q) {
    if (num_runs[q] != 1) own[q] = -1;
  }
  return own;
}

// True if all queries of a prefix's tile continue after it, each in its own
// table, and these tables are consecutive.
bool GoOnAlone(const Piece& run, const std::vector<Piece>& tiles,
               const std::vector<int>& own) {
  if (run.is_own) return false;
  for (int i = 0; i < run.num_queries; ++i) {
    const int t = own[run.first_query + i];
    if (t < 0 || tiles[t].kv_begin != run.kv_end ||
        tiles[t].table != tiles[own[run.first_query]].table + i) {
      return false;
    }
  }
  return true;
}

class Planner {
 public:
  Planner(const std::vector<Piece>& pieces, int num_queries,
          const CudaAttentionShape& shape, const CudaDevice& device)
      : num_queries_(num_queries),
        num_kv_heads_(shape.num_kv_heads),
        group_(HeadsPerKvHead(shape)),
        num_sms_(device.num_sms),
        tensor_cores_(AttentionUsesTensorCores(shape)) {
    const int max_rows =
        tensor_cores_ ? kAttentionBlockRows : kAttentionAnyRows;
    for (const Piece& piece : pieces) {
      AppendTiles(piece, std::max(max_rows / group_, 1), tiles_);
    }
    int num_short = 0;
    for (const Piece& tile : tiles_) {
      num_short += tile.is_own && tile.length() <= kWarpPositionsOfMany;
    }
    many_rows_ = num_short * num_kv_heads_ > kBlocksPerSm * num_sms_;
    if (tensor_cores_) JoinTiles();
  }

  CudaAttentionWork Divide(int max_items, int max_partials) const {
    int longest = 1;
    for (const Piece& tile : tiles_) longest = std::max(longest, tile.length());
    for (int64_t scale = 1;; scale *= 2) {
      CudaAttentionWork work = Emit(scale);
      const bool fits = static_cast<int>(work.items.size()) <= max_items &&
                        work.partial_indptr.back() <= max_partials;
      if (fits) return work;
      CHECK(scale <= longest) << work.items.size() << " items of at most "
                              << max_items << ", " << work.partial_indptr.back()
                              << " partials of at most " << max_partials;
    }
  }

 private:
  // Tiles of a shared prefix with more than half a block's rows take over their
  // queries' own positions, if they are undivided and enough to give the device
  // a block each. Then these queries have one item, and nothing is merged.
  void JoinTiles() {
    const std::vector<int> own = TilesAfterOneRun(tiles_, num_queries_);
    const int64_t chunk = ChunkOfBatch();
    std::vector<Piece*> joined;
    for (Piece& tile : tiles_) {
      if (tile.num_queries * group_ > 2 * kAttentionWarpRows &&
          GoOnAlone(tile, tiles_, own) && NumChunks(tile, chunk) == 1) {
        joined.push_back(&tile);
      }
    }
    const int num_units = static_cast<int>(joined.size()) * num_kv_heads_;
    if (num_units < num_sms_ * kEighthsOfSms / 8) return;
    std::vector<bool> is_gone(tiles_.size(), false);
    for (Piece* run : joined) {
      run->own_tables = tiles_[own[run->first_query]].table;
      for (int i = 0; i < run->num_queries; ++i) {
        const int t = own[run->first_query + i];
        run->own_positions += tiles_[t].length();
        is_gone[t] = true;
      }
    }
    std::vector<Piece> left;
    for (size_t t = 0; t < tiles_.size(); ++t) {
      if (!is_gone[t]) left.push_back(tiles_[t]);
    }
    tiles_ = std::move(left);
  }

  bool IsForWarp(const Piece& tile) const {
    return tensor_cores_ && tile.num_queries * group_ <= kAttentionWarpRows &&
           (tile.length() <= kWarpPositions ||
            (many_rows_ && tile.is_own &&
             tile.length() <= kWarpPositionsOfMany));
  }

  // Returns a chunk length that gives each multiprocessor one block of reading,
  // or two blocks of arithmetic. A power of two, so that it seldom changes with
  // the batch.
  int64_t ChunkOfBatch() const {
    int64_t positions = 0;
    int64_t chunk = kMinChunk;
    for (const Piece& tile : tiles_) {
      const bool multiplies =
          tile.num_queries * group_ > 2 * kAttentionWarpRows;
      positions += tile.length() / (IsForWarp(tile) ? kWarpsPerBlock
                                    : multiplies    ? kBlocksPerSm
                                                    : 1);
      positions += tile.own_positions / kWarpsPerBlock;
      if (tile.length() > kLong) chunk = kMinChunkOfLong;
    }
    chunk = std::max(chunk, positions * num_kv_heads_ / num_sms_ * 3 / 4);
    return std::bit_ceil(static_cast<uint64_t>(chunk));
  }

  int64_t ChunkOfTile(const Piece& tile) const {
    if (tile.is_multi_query) {
      return tile.length();
    }
    return std::max<int64_t>(
        std::bit_ceil(static_cast<uint64_t>(tile.length())) / kMaxChunksAny,
        kMinChunkAny);
  }

  // A remainder of less than three quarters joins the last chunk.
  static int NumChunks(const Piece& tile, int64_t chunk) {
    if (tile.own_tables >= 0) return 1;
    return static_cast<int>(
        std::max<int64_t>((tile.length() + chunk / 4) / chunk, 1));
  }

  CudaAttentionWork Emit(int64_t scale) const;

  const int num_queries_;
  const int num_kv_heads_;
  const int group_;
  const int num_sms_;
  const bool tensor_cores_;
  std::vector<Piece> tiles_;
  bool many_rows_ = false;
};

// Appends the items of `tile`, whose queries have `ordinal` items already.
void AppendItems(const Piece& tile, int64_t chunk, int num_chunks, int ordinal,
                 std::vector<CudaAttentionItem>& items) {
  for (int c = 0; c < num_chunks; ++c) {
    const int begin = static_cast<int>(tile.kv_begin + c * chunk);
    const int end = c + 1 < num_chunks ? static_cast<int>(begin + chunk)
                                       : tile.kv_begin + tile.length();
    items.push_back({tile.first_query, tile.num_queries, tile.table, begin, end,
                     ordinal + c, tile.kv_from_earlier_steps, tile.own_tables});
  }
}

CudaAttentionWork Planner::Emit(int64_t scale) const {
  CudaAttentionWork work;
  std::vector<CudaAttentionItem> warp_items;
  std::vector<int> num_items(num_queries_ + 1, 0);  // per query
  const int64_t chunk_of_batch = tensor_cores_ ? ChunkOfBatch() : 0;
  for (const Piece& tile : tiles_) {
    const int64_t chunk =
        scale * (tensor_cores_ ? chunk_of_batch : ChunkOfTile(tile));
    const bool for_warp = IsForWarp(tile);
    const int num_chunks = for_warp ? 1 : NumChunks(tile, chunk);
    // Queries of an item have the same number of items before it.
    Piece part = tile;
    const int end = tile.first_query + tile.num_queries;
    while (part.first_query < end) {
      const int ordinal = num_items[part.first_query];
      int part_end = part.first_query;
      while (part_end < end && num_items[part_end] == ordinal) {
        num_items[part_end++] += num_chunks;
      }
      part.num_queries = part_end - part.first_query;
      if (part.is_own && !part.sees_all &&
          part.first_query != tile.first_query) {
        part.kv_from_earlier_steps = 0;
      }
      CHECK(part.own_tables < 0 || part.num_queries == tile.num_queries)
          << "its tables would be another query's";
      AppendItems(part, chunk, num_chunks, ordinal,
                  for_warp ? warp_items : work.items);
      work.has_own_tables |= part.own_tables >= 0;
      part.first_query = part_end;
    }
  }
  // Long items first, so that none begins when the others end.
  const auto cost = [this](const CudaAttentionItem& item) {
    return int64_t{item.kv_end - item.kv_begin} *
           CostOf(item.num_queries * group_);
  };
  std::stable_sort(
      work.items.begin(), work.items.end(),
      [&](const auto& a, const auto& b) { return cost(a) > cost(b); });
  work.item_counts = {static_cast<int>(work.items.size()),
                      static_cast<int>(warp_items.size())};
  work.items.insert(work.items.end(), warp_items.begin(), warp_items.end());
  work.partial_indptr.assign(1, 0);
  for (int q = 0; q < num_queries_; ++q) {
    work.partial_indptr.push_back(work.partial_indptr.back() +
                                  (num_items[q] > 1 ? num_items[q] : 0));
  }
  return work;
}

}  // namespace

CudaAttentionWork PlanCudaAttention(std::span<const CudaAttentionRow> rows,
                                    std::span<const CudaSharedPrefix> runs,
                                    int num_queries,
                                    const CudaAttentionShape& shape,
                                    int max_items, int max_partials,
                                    const CudaDevice& device) {
  const Planner planner(ListPieces(rows, runs, num_queries, shape, device),
                        num_queries, shape, device);
  return planner.Divide(max_items, max_partials);
}

}  // namespace espalier
