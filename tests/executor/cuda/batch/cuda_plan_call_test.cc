// Random plans in calls of a model: each token comes once, in order, with its
// pages.
#include "executor/cuda/batch/cuda_plan_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "base/page_count.h"
#include "pages/page_table.h"

namespace espalier {
namespace {

constexpr PageId kNullPage = {9999};

struct BoundedPlan {
  StepPlan plan;
  CudaCallBounds bounds;
  int page_size = 1;
};

// Rows of any lengths and positions.
BoundedPlan AnyBoundedPlan(uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  BoundedPlan made;
  made.page_size = 1 + below(5);
  made.bounds.max_tokens = 8 + below(30);
  made.bounds.max_logits = 1 + below(10);
  StepPlan& plan = made.plan;
  const int num_rows = 1 + below(8);
  for (int r = 0; r < num_rows; ++r) {
    const int first = below(40);
    const int num_tokens = 1 + below(40);
    const int num_logits = below(num_tokens + 1);
    plan.rows.push_back({.first_token = static_cast<int>(plan.tokens.size()),
                         .num_tokens = num_tokens,
                         .first_position = first,
                         .num_logits = num_logits,
                         .first_logits = plan.num_logits});
    plan.num_logits += num_logits;
    for (int i = 0; i < num_tokens; ++i) plan.tokens.push_back(below(1000));
    const int64_t num_pages = NumPages(first + num_tokens, made.page_size);
    for (int i = 0; i < num_pages; ++i) {
      plan.page_indices.push_back(PageId{below(500)});
    }
    plan.page_indptr.push_back(static_cast<int>(plan.page_indices.size()));
  }
  return made;
}

void ExpectWithinBounds(const CudaPlanCall& call, const BoundedPlan& made) {
  ASSERT_LE(call.num_tokens(), made.bounds.max_tokens);
  ASSERT_LE(std::ssize(call.logits_rows), made.bounds.max_logits);
  ASSERT_GT(call.num_tokens(), 0);
}

void ExpectTokens(const CudaPlanCall& call, const BoundedPlan& made, int* row,
                  int* num_fed, int* num_logits) {
  const StepPlan& plan = made.plan;
  const std::vector<int> tables = call.FlatTables(kNullPage);
  size_t next_logits = 0;
  for (const CudaAttentionRow& fed : call.attention_rows) {
    if (*num_fed == plan.rows[*row].num_tokens) {
      ++*row;
      *num_fed = 0;
    }
    const PlanRow& expected = plan.rows[*row];
    for (int t = 0; t < fed.num_queries; ++t, ++*num_fed) {
      const int at = fed.first_query + t;
      const int position = expected.first_position + *num_fed;
      const int page = position / made.page_size;
      ASSERT_EQ(call.tokens[at], plan.row_tokens(expected)[*num_fed]);
      ASSERT_EQ(call.positions[at], position);
      ASSERT_EQ(call.token_tables[at], fed.table);
      ASSERT_EQ(tables[fed.table * call.stride + page],
                plan.row_pages(*row)[page].value);
      if (*num_fed < expected.num_tokens - expected.num_logits) continue;
      ASSERT_EQ(call.logits_rows.at(next_logits++), at);
      ++*num_logits;
    }
    ASSERT_EQ(fed.max_positions, expected.first_position + *num_fed);
  }
  ASSERT_EQ(next_logits, call.logits_rows.size());
}

TEST(CudaPlanCallTest, EachTokenIsFedOnceWithItsPages) {
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    const BoundedPlan made = AnyBoundedPlan(seed);
    CudaPlanReader reader(&made.plan, made.bounds);
    int row = 0, num_fed = 0, num_logits = 0;
    while (!reader.is_done()) {
      const CudaPlanCall call = reader.Next();
      ASSERT_NO_FATAL_FAILURE(ExpectWithinBounds(call, made));
      ASSERT_NO_FATAL_FAILURE(
          ExpectTokens(call, made, &row, &num_fed, &num_logits));
    }
    EXPECT_EQ(num_logits, made.plan.num_logits);
    EXPECT_EQ(row + 1, std::ssize(made.plan.rows));
    EXPECT_EQ(num_fed, made.plan.rows.back().num_tokens);
  }
}

}  // namespace
}  // namespace espalier
