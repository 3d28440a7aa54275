#include "kernels/attention/cuda_attention_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "kernels/attention/cuda_attention.h"
#include "kernels/attention/cuda_attention_work.h"

namespace espalier {
namespace {

struct Asked {
  std::vector<CudaAttentionRow> rows;
  std::vector<CudaSharedPrefix> runs;
  int num_queries = 0;

  int TotalRunQueries() const {
    int sum = 0;
    for (const CudaSharedPrefix& run : runs) sum += run.num_queries;
    return sum;
  }
};

constexpr int kHopperSms = 132;

CudaAttentionWork Plan(const Asked& asked, const CudaAttentionShape& shape,
                       int max_items = 1 << 20, int max_partials = 1 << 20,
                       int num_sms = kHopperSms) {
  CudaDevice device;
  device.num_sms = num_sms;
  return PlanCudaAttention(asked.rows, asked.runs, asked.num_queries, shape,
                           max_items, max_partials, device);
}

void AddRow(Asked& asked, int num_queries, int kv_begin, int max_positions) {
  asked.rows.push_back({asked.num_queries, num_queries,
                        static_cast<int>(asked.rows.size()), kv_begin,
                        max_positions});
  asked.num_queries += num_queries;
}

// Adds a row of an encoder, or of cross-attention.
void AddRowThatSeesAll(Asked& asked, int num_queries, int max_positions) {
  AddRow(asked, num_queries, 0, max_positions);
  asked.rows.back().sees_all = 1;
}

void AddGroup(Asked& asked, int num_beams, int shared, int tail) {
  asked.runs.push_back({asked.num_queries, num_beams,
                        static_cast<int>(asked.rows.size()), 0, shared});
  for (int b = 0; b < num_beams; ++b) AddRow(asked, 1, shared, shared + tail);
}

// Rows of several queries that share positions.
void AddChunks(Asked& asked, int num_rows, int num_queries, int shared,
               int tail) {
  asked.runs.push_back({asked.num_queries, num_rows * num_queries,
                        static_cast<int>(asked.rows.size()), 0, shared});
  for (int row = 0; row < num_rows; ++row) {
    AddRow(asked, num_queries, shared, shared + tail + num_queries);
  }
}

// Two halves that share some more.
void AddTree(Asked& asked, int num_beams, int shared, int more, int tail) {
  const int first = asked.num_queries;
  for (int side = 0; side < 2; ++side) {
    const int num = side == 0 ? num_beams / 2 : num_beams - num_beams / 2;
    asked.runs.push_back({asked.num_queries, num,
                          static_cast<int>(asked.rows.size()), shared,
                          shared + more});
    for (int b = 0; b < num; ++b) {
      AddRow(asked, 1, shared + more, shared + more + tail);
    }
  }
  asked.runs.push_back(
      {first, num_beams, static_cast<int>(asked.rows.size()) - 1, 0, shared});
}

Asked RandomBatch(int seed, int page_size) {
  std::mt19937 random(seed);
  auto below = [&](int n) { return static_cast<int>(random() % n); };
  Asked asked;
  const int num_parts = 1 + below(6);
  for (int i = 0; i < num_parts; ++i) {
    const int pages = 1 + below(1 << below(9));
    const int tail = 1 + below(1 << below(9));
    switch (below(6)) {
      case 0:
        AddRow(asked, 1, 0, 1 + below(1 << (1 + below(13))));
        break;
      case 1: {
        const int num_queries = 1 + below(1 << below(10));
        AddRow(asked, num_queries, 0, num_queries + below(3000));
        break;
      }
      case 2:
        AddGroup(asked, 1 + below(1 << below(8)), pages * page_size, tail);
        break;
      case 3:
        AddChunks(asked, 1 + below(40), 1 + below(1 << below(7)),
                  pages * page_size, tail - 1);
        break;
      case 4:
        AddRowThatSeesAll(asked, 1 + below(1 << below(10)), 1 + below(2000));
        break;
      default:
        AddTree(asked, 2 + below(40), pages * page_size,
                (1 + below(20)) * page_size, tail);
    }
  }
  return asked;
}

constexpr CudaAttentionShape kShapes[] = {
    {32, 8, 128, 16, DType::kBFloat16}, {12, 12, 64, 32, DType::kFloat16},
    {20, 1, 64, 16, DType::kBFloat16},  {24, 8, 128, 48, DType::kBFloat16},
    {32, 8, 128, 16, DType::kFloat32},  {6, 2, 80, 7, DType::kBFloat16}};

// Page table of each position that a query attends to; -1: none.
std::vector<int> TablesAsked(const Asked& asked, int query, int size) {
  std::vector<int> tables(size, -1);
  for (const CudaAttentionRow& row : asked.rows) {
    if (query < row.first_query || query >= row.first_query + row.num_queries) {
      continue;
    }
    const int end =
        row.max_positions -
        (row.sees_all ? 0 : row.first_query + row.num_queries - 1 - query);
    std::fill(tables.begin(), tables.begin() + end, row.table);
  }
  return tables;
}

// True if `table` belongs to a shared prefix that covers query and position.
bool MaySubstitute(const Asked& asked, int query, int position, int table) {
  return std::any_of(asked.runs.begin(), asked.runs.end(),
                     [&](const CudaSharedPrefix& run) {
                       return run.table == table && query >= run.first_query &&
                              query < run.first_query + run.num_queries &&
                              position >= run.kv_begin && position < run.kv_end;
                     });
}

void ExpectCoversEverythingOnce(const Asked& asked,
                                const CudaAttentionWork& work, int query) {
  constexpr int kMaxPositions = 12000;
  const std::vector<int> asked_of = TablesAsked(asked, query, kMaxPositions);
  std::vector<int> times(kMaxPositions);
  std::vector<int> ordinals;
  for (const CudaAttentionItem& item : work.items) {
    if (query < item.first_query ||
        query >= item.first_query + item.num_queries) {
      continue;
    }
    ordinals.push_back(item.ordinal);
    ASSERT_LE(item.kv_end, kMaxPositions);
    for (int p = item.kv_begin; p < item.kv_end; ++p) {
      ++times[p];
      ASSERT_TRUE(asked_of[p] == -1 || asked_of[p] == item.table ||
                  MaySubstitute(asked, query, p, item.table))
          << "query " << query << " position " << p;
    }
    if (item.own_tables < 0) continue;
    const int own_table = item.own_tables + query - item.first_query;
    for (int p = item.kv_end; p < kMaxPositions && asked_of[p] != -1; ++p) {
      ++times[p];
      ASSERT_EQ(asked_of[p], own_table) << "query " << query;
    }
  }
  for (int p = 0; p < kMaxPositions; ++p) {
    if (asked_of[p] != -1) {
      ASSERT_EQ(times[p], 1) << "query " << query << " position " << p;
    }
  }
  std::sort(ordinals.begin(), ordinals.end());
  for (size_t i = 0; i < ordinals.size(); ++i) {
    ASSERT_EQ(ordinals[i], static_cast<int>(i)) << "query " << query;
  }
  ASSERT_EQ(work.partial_indptr[query + 1] - work.partial_indptr[query],
            ordinals.size() == 1 ? 0 : static_cast<int>(ordinals.size()));
}

// A device that the batches do not fill, and one that they do.
constexpr int kNumSms[] = {kHopperSms, 3};

TEST(CudaAttentionPlanTest, EveryQueryMeetsEveryPositionOnce) {
  for (int seed = 0; seed < 120; ++seed) {
    const CudaAttentionShape& shape = kShapes[seed % std::size(kShapes)];
    const Asked asked = RandomBatch(seed, shape.page_size);
    const CudaAttentionWork work =
        Plan(asked, shape, 1 << 20, 1 << 20, kNumSms[seed / 60]);
    const int step = std::max(1, asked.num_queries / 25);
    for (int q = 0; q < asked.num_queries; q += step) {
      SCOPED_TRACE(seed);
      ExpectCoversEverythingOnce(asked, work, q);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(CudaAttentionPlanTest, ItemsFitTheirKernels) {
  int num_with_own = 0;
  for (int seed = 0; seed < 400; ++seed) {
    const CudaAttentionShape& shape = kShapes[seed % std::size(kShapes)];
    const CudaAttentionWork work =
        Plan(RandomBatch(seed, shape.page_size), shape, 1 << 20, 1 << 20,
             kNumSms[seed / 200]);
    const int group = HeadsPerKvHead(shape);
    ASSERT_EQ(work.item_counts[0] + work.item_counts[1],
              static_cast<int>(work.items.size()));
    for (size_t i = 0; i < work.items.size(); ++i) {
      const CudaAttentionItem& item = work.items[i];
      ASSERT_LT(item.kv_begin, item.kv_end);
      if (!AttentionUsesTensorCores(shape)) {
        ASSERT_LE(item.num_queries, kAttentionAnyRows);
        continue;
      }
      ASSERT_EQ(item.kv_begin % 16, 0);
      const bool of_block = static_cast<int>(i) < work.item_counts[0];
      ASSERT_LE(item.num_queries * group,
                of_block ? kAttentionBlockRows : kAttentionWarpRows);
      if (item.own_tables < 0) continue;
      ++num_with_own;
      ASSERT_TRUE(of_block);
      ASSERT_GT(item.num_queries * group, kAttentionBlockRows / 2);
      ASSERT_EQ(item.kv_end % 16, 0);
    }
  }
  EXPECT_GT(num_with_own, 0);
}

TEST(CudaAttentionPlanTest, LimitsAreKept) {
  for (int seed = 0; seed < 200; ++seed) {
    const CudaAttentionShape& shape = kShapes[seed % std::size(kShapes)];
    const Asked asked = RandomBatch(seed, shape.page_size);
    // One item for every query of every run and row.
    const int least = asked.num_queries + asked.TotalRunQueries();
    for (const int more : {0, 3, 100}) {
      const CudaAttentionWork work =
          Plan(asked, shape, least + more, least + more);
      ASSERT_LE(static_cast<int>(work.items.size()), least + more);
      ASSERT_LE(work.partial_indptr.back(), least + more);
      ASSERT_EQ(static_cast<int>(work.partial_indptr.size()),
                asked.num_queries + 1);
    }
  }
}

TEST(CudaAttentionPlanTest, NothingAskedIsNothingPlanned) {
  const CudaAttentionWork work = Plan({}, kShapes[0]);
  EXPECT_TRUE(work.items.empty());
  EXPECT_EQ(work.partial_indptr, std::vector<int>{0});
}

// Positions below a row's first query are from earlier steps; later ones are
// written in this step. A row that sees all positions may be complete from the
// start.
TEST(CudaAttentionPlanTest, WhatWasCompleteBeforeIsReadEarly) {
  Asked asked;
  AddRow(asked, 1, 0, 40);
  AddRow(asked, 4, 0, 40);
  AddRowThatSeesAll(asked, 4, 40);
  AddRowThatSeesAll(asked, 4, 40);
  asked.rows.back().is_complete = 1;
  AddRow(asked, 200, 0, 300);
  std::vector<int> early(5, -1);
  int num_tiles = 0;
  for (const CudaAttentionItem& item : Plan(asked, kShapes[0]).items) {
    if (item.first_query > asked.rows.back().first_query) {
      EXPECT_FALSE(item.kv_from_earlier_steps);
      ++num_tiles;
    } else {
      early[item.table] = item.kv_from_earlier_steps;
    }
  }
  EXPECT_EQ(early, (std::vector<int>{1, 1, 0, 1, 1}));
  EXPECT_GT(num_tiles, 0);
}

// Some of a row's queries have one run in front of it, others two: their items
// differ, and only the first one's first query is the row's.
TEST(CudaAttentionPlanTest, OfARowThatIsDividedTheFirstPartIsReadEarly) {
  Asked asked;
  asked.num_queries = 4;
  asked.rows = {{.first_query = 0,
                 .num_queries = 4,
                 .table = 0,
                 .kv_begin = 128,
                 .max_positions = 300}};
  asked.runs = {
      {.first_query = 0, .num_queries = 2, .kv_end = 128},
      {.first_query = 2, .num_queries = 2, .kv_end = 64},
      {.first_query = 2, .num_queries = 2, .kv_begin = 64, .kv_end = 128}};
  int num_later = 0;
  for (const CudaAttentionItem& item : Plan(asked, kShapes[0]).items) {
    if (item.kv_begin < 128) continue;
    EXPECT_EQ(item.kv_from_earlier_steps, item.first_query == 0);
    num_later += item.first_query > 0;
  }
  EXPECT_GT(num_later, 0);
}

// Runs that fill the device take with them what their queries have alone.
TEST(CudaAttentionPlanTest, BeamsThatFillTheDeviceHaveOneItemEach) {
  const CudaAttentionShape shape = {16, 8, 128, 16, DType::kBFloat16};
  Asked asked;
  AddRow(asked, 1, 0, 40);
  AddGroup(asked, 5000, 512, 16);
  const CudaAttentionWork work = Plan(asked, shape);
  EXPECT_EQ(work.partial_indptr.back(), 0);
  EXPECT_EQ(work.item_counts[1], 1);
  for (int i = 0; i < work.item_counts[0]; ++i) {
    const CudaAttentionItem& item = work.items[i];
    EXPECT_EQ(item.kv_end, 512);
    EXPECT_EQ(item.own_tables, item.first_query);
  }
}

// Shared and private positions are separate items if tables are not
// consecutive, prefixes are few, or rows are long or have several prefixes.
TEST(CudaAttentionPlanTest, OtherBeamsHaveAnItemForWhatTheyHaveAlone) {
  const CudaAttentionShape shape = {16, 8, 128, 16, DType::kBFloat16};
  Asked shuffled, few, lengthy, tree;
  AddGroup(shuffled, 5000, 512, 16);
  for (size_t i = 0; i < shuffled.rows.size(); ++i) {
    shuffled.rows[i].table = static_cast<int>(i ^ 1);
  }
  AddGroup(few, 160, 512, 128);
  AddGroup(lengthy, 600, 512, 300);
  AddTree(tree, 1000, 512, 256, 16);
  for (const Asked& asked : {shuffled, few, lengthy, tree}) {
    ASSERT_GT(Plan(asked, shape).partial_indptr.back(), 0);  // runs pay
    for (const CudaAttentionItem& item : Plan(asked, shape).items) {
      ASSERT_EQ(item.own_tables, -1);
    }
  }
}

// The split of a query's positions does not depend on the batch.
TEST(CudaAttentionPlanTest, Float32IsDividedByItsOwnLengths) {
  const CudaAttentionShape shape = kShapes[4];
  Asked alone;
  AddGroup(alone, 5, 2000, 40);
  Asked together = alone;
  for (int i = 0; i < 50; ++i) AddRow(together, 1, 0, 3000);
  const auto items_of_group = [&](const Asked& asked) {
    std::vector<std::vector<int>> result;
    for (const CudaAttentionItem& item : Plan(asked, shape).items) {
      if (item.first_query >= 5) continue;
      result.push_back({item.first_query, item.num_queries, item.kv_begin,
                        item.kv_end, item.ordinal});
    }
    std::sort(result.begin(), result.end());
    return result;
  };
  EXPECT_EQ(items_of_group(alone), items_of_group(together));
}

}  // namespace
}  // namespace espalier
