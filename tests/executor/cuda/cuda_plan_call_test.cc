// Random plans in calls of a model: each token comes once, in order, with its
// pages and its source.
#include "executor/cuda/cuda_plan_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "base/check.h"
#include "pages/page_table.h"

namespace espalier {
namespace {

constexpr PageId kNullPage = {9999};

struct RandomPlan {
  StepPlan plan;
  CudaCallBounds bounds;
  int page_size = 1;
};

// Rows of any lengths and positions; with an encoder each has a source, that of
// the row before or another, and begins within it, at its end or behind.
RandomPlan MakePlan(uint32_t seed, bool has_encoder) {
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  RandomPlan made;
  made.page_size = 1 + below(5);
  made.bounds.max_tokens = 8 + below(30);
  made.bounds.max_logits = 1 + below(10);
  if (has_encoder) {
    made.bounds.max_source_pages =
        static_cast<int>(NumPages(made.bounds.max_tokens, made.page_size));
  }
  StepPlan& plan = made.plan;
  const int num_rows = 1 + below(8);
  for (int r = 0; r < num_rows; ++r) {
    const bool is_beam = has_encoder && r > 0 && below(2) > 0;
    const int source_length = is_beam       ? plan.rows.back().source_length
                              : has_encoder ? 1 + below(made.bounds.max_tokens)
                                            : 0;
    const int source_end = static_cast<int>(
        NumPages(source_length, made.page_size) * made.page_size);
    const int first = below(source_end + 10);
    const int num_tokens = 1 + below(source_end + 10);
    const int num_behind =
        std::clamp(first + num_tokens - source_end, 0, num_tokens);
    const int num_logits = below(num_behind + 1);
    plan.rows.push_back({.first_token = static_cast<int>(plan.tokens.size()),
                         .num_tokens = num_tokens,
                         .first_position = first,
                         .num_logits = num_logits,
                         .first_logits = plan.num_logits,
                         .source_length = source_length});
    plan.num_logits += num_logits;
    for (int i = 0; i < num_tokens; ++i) plan.tokens.push_back(below(1000));
    if (first < source_end && has_encoder) {
      auto source = std::make_shared<std::vector<TokenId>>(source_length);
      for (TokenId& token : *source) token = below(1000);
      plan.sources.push_back({r, source});
    }
    const int64_t num_pages = NumPages(first + num_tokens, made.page_size);
    const int parent = plan.page_indptr.end()[is_beam ? -2 : -1];
    const int num_shared = is_beam ? std::min(source_end / made.page_size,
                                              plan.page_indptr.back() - parent)
                                   : 0;
    for (int i = 0; i < num_pages; ++i) {
      plan.page_indices.push_back(i < num_shared ? plan.page_indices[parent + i]
                                                 : PageId{below(500)});
    }
    plan.page_indptr.push_back(static_cast<int>(plan.page_indices.size()));
  }
  return made;
}

// What the calls fed of a row.
class FedRow {
 public:
  FedRow(const RandomPlan& made, int row)
      : plan_(made.plan),
        row_(made.plan.rows[row]),
        index_(row),
        page_size_(made.page_size),
        source_end_(static_cast<int>(NumPages(row_.source_length, page_size_) *
                                     page_size_)) {}

  int num_of_source() const {
    return std::clamp(source_end_ - row_.first_position, 0, row_.num_tokens);
  }
  int num_behind() const { return row_.num_tokens - num_of_source(); }
  TokenId token(int i) const {
    return plan_.tokens[row_.first_token + num_of_source() + i];
  }
  int position(int i) const {
    return row_.first_position + num_of_source() + i - source_end_;
  }
  bool has_logits(int i) const { return i >= num_behind() - row_.num_logits; }
  // Where the cache has a position behind the source, or of it.
  PageId page(int position) const {
    return plan_.row_pages(index_)[(source_end_ + position) / page_size_];
  }
  PageId source_page(int position) const {
    return plan_.row_pages(index_)[position / page_size_];
  }
  bool is_fed(int source_position) const {
    return source_position >= row_.first_position &&
           source_position < row_.first_position + row_.num_tokens;
  }
  int source_length() const { return row_.source_length; }

 private:
  const StepPlan& plan_;
  const PlanRow& row_;
  const int index_;
  const int page_size_;
  const int source_end_;
};

void ExpectWithinBounds(const CudaPlanCall& call, const RandomPlan& made) {
  ASSERT_LE(call.tokens.size(), made.bounds.max_tokens);
  ASSERT_LE(call.sources.size(), made.bounds.max_tokens);
  ASSERT_LE(call.num_source_pages, made.bounds.max_source_pages);
  ASSERT_LE(std::ssize(call.logits_rows), made.bounds.max_logits);
  ASSERT_GT(call.tokens.size() + call.sources.size(), 0);
}

// Sources are read whole, each on pages of its own, and stored where the row
// feeds them alone.
void ExpectSources(const CudaPlanCall& call, const RandomPlan& made,
                   size_t* next_source) {
  const std::vector<int> tables = call.FlatTables(kNullPage);
  const std::vector<int> own_tables = call.FlatSourceTables();
  std::vector<int> pages;
  for (const CudaAttentionRow& read : call.sources.rows) {
    const auto& source = made.plan.sources.at((*next_source)++);
    const FedRow row(made, source.row);
    ASSERT_EQ(read.num_queries, std::ssize(*source.tokens));
    ASSERT_EQ(read.max_positions, read.num_queries);
    ASSERT_TRUE(read.sees_all);
    for (int i = 0; i < read.num_queries; ++i) {
      const int at = read.first_query + i;
      ASSERT_EQ(call.sources.ids[at], (*source.tokens)[i]);
      ASSERT_EQ(call.sources.positions[at], i);
      ASSERT_EQ(call.source_last_positions[at], read.num_queries - 1);
      ASSERT_EQ(call.sources.tables[at], read.table);
      const int page = i / made.page_size;
      if (i % made.page_size == 0) {
        pages.push_back(own_tables[read.table * call.source_stride + page]);
      }
      const int stored = tables[call.cross_tables[at] * call.stride + page];
      ASSERT_EQ(stored,
                row.is_fed(i) ? row.source_page(i).value : kNullPage.value);
    }
  }
  std::vector<int> expected(call.num_source_pages);
  std::iota(expected.begin(), expected.end(), 0);
  ASSERT_EQ(pages, expected);
}

// The one that a query is of.
const CudaAttentionRow& CrossRowOf(const CudaPlanCall& call, int query) {
  const auto row = std::ranges::find_if(call.cross_rows, [&](const auto& r) {
    return query >= r.first_query && query < r.first_query + r.num_queries;
  });
  CHECK(row != call.cross_rows.end()) << "query " << query;
  return *row;
}

void ExpectTokens(const CudaPlanCall& call, const RandomPlan& made, int* row,
                  int* num_fed, int* num_logits) {
  const std::vector<int> tables = call.FlatTables(kNullPage);
  size_t next_logits = 0;
  for (size_t i = 0; i < call.tokens.rows.size(); ++i) {
    const CudaAttentionRow& fed = call.tokens.rows[i];
    while (*num_fed == FedRow(made, *row).num_behind()) {
      ++*row;
      *num_fed = 0;
    }
    const FedRow expected(made, *row);
    for (int t = 0; t < fed.num_queries; ++t, ++*num_fed) {
      const int at = fed.first_query + t;
      const int position = expected.position(*num_fed);
      ASSERT_EQ(call.tokens.ids[at], expected.token(*num_fed));
      ASSERT_EQ(call.tokens.positions[at], position);
      ASSERT_EQ(call.tokens.tables[at], fed.table);
      ASSERT_EQ(tables[fed.table * call.stride + position / made.page_size],
                expected.page(position).value);
      if (expected.has_logits(*num_fed)) {
        ASSERT_EQ(call.logits_rows.at(next_logits++), at);
        ++*num_logits;
      }
      if (expected.source_length() == 0) continue;
      ASSERT_EQ(call.cross_positions[at], expected.source_length() - 1);
      const CudaAttentionRow& cross = CrossRowOf(call, at);
      ASSERT_EQ(cross.max_positions, expected.source_length());
      for (int p = 0; p < expected.source_length(); ++p) {
        ASSERT_EQ(tables[cross.table * call.stride + p / made.page_size],
                  expected.source_page(p).value);
      }
    }
    ASSERT_EQ(fed.max_positions, expected.position(*num_fed - 1) + 1);
  }
  ASSERT_EQ(next_logits, call.logits_rows.size());
}

TEST(CudaPlanCallTest, EachTokenIsFedOnceWithItsPagesAndItsSource) {
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    const RandomPlan made = MakePlan(seed, /*has_encoder=*/seed % 3 > 0);
    CudaPlanReader reader(&made.plan, made.bounds, made.page_size);
    size_t next_source = 0;
    int row = 0, num_fed = 0, num_logits = 0;
    while (!reader.is_done()) {
      const CudaPlanCall call = reader.Next();
      ASSERT_NO_FATAL_FAILURE(ExpectWithinBounds(call, made));
      ASSERT_NO_FATAL_FAILURE(ExpectSources(call, made, &next_source));
      ASSERT_NO_FATAL_FAILURE(
          ExpectTokens(call, made, &row, &num_fed, &num_logits));
    }
    EXPECT_EQ(next_source, made.plan.sources.size());
    EXPECT_EQ(num_logits, made.plan.num_logits);
    while (row < std::ssize(made.plan.rows) &&
           num_fed == FedRow(made, row).num_behind()) {
      ++row;
      num_fed = 0;
    }
    EXPECT_EQ(row, std::ssize(made.plan.rows));
  }
}

}  // namespace
}  // namespace espalier
