// Random plans of a model with an encoder: what is taken out of them, what is
// left, and in which calls the encoder reads it.
#include "executor/cuda/batch/cuda_plan_sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "base/page_count.h"
#include "executor/cuda/step/cuda_source_reader.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

struct PlanWithSources {
  StepPlan plan;
  int page_size = 1;
};

// Rows of any lengths, that begin within their source, at its end or after.
PlanWithSources AnyPlanWithSources(uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  PlanWithSources made;
  made.page_size = 1 + below(5);
  StepPlan& plan = made.plan;
  const int num_rows = 1 + below(8);
  for (int r = 0; r < num_rows; ++r) {
    const int source_length = 1 + below(30);
    const int end = SourceEnd(source_length, made.page_size);
    const int first = below(end + 10);
    const int num_tokens = 1 + below(end + 10);
    const int num_after = std::clamp(first + num_tokens - end, 0, num_tokens);
    const int num_logits = below(num_after + 1);
    plan.rows.push_back({.first_token = static_cast<int>(plan.tokens.size()),
                         .num_tokens = num_tokens,
                         .first_position = first,
                         .num_logits = num_logits,
                         .first_logits = plan.num_logits,
                         .source_length = source_length});
    plan.num_logits += num_logits;
    for (int i = 0; i < num_tokens; ++i) plan.tokens.push_back(below(1000));
    if (first < source_length) {
      auto source = std::make_shared<std::vector<TokenId>>(source_length);
      for (TokenId& token : *source) token = below(1000);
      plan.sources.push_back({r, source});
    }
    const int64_t num_pages = NumPages(first + num_tokens, made.page_size);
    for (int i = 0; i < num_pages; ++i) {
      plan.page_indices.push_back(PageId{below(500)});
    }
    plan.page_indptr.push_back(static_cast<int>(plan.page_indices.size()));
  }
  return made;
}

// Position by position: each is the decoder's or the source's, on its page.
void ExpectRow(const PlanWithSources& made, const StepPlan& decoder,
               const CudaPlanSources& sources, size_t r) {
  const PlanRow& row = made.plan.rows[r];
  const PlanRow& left = decoder.rows[r];
  const int end = SourceEnd(row.source_length, made.page_size);
  const auto pages = made.plan.row_pages(r);
  int num_left = 0;
  for (int i = 0; i < row.num_tokens; ++i) {
    const int position = row.first_position + i;
    const int page = position / made.page_size;
    if (position < end) {
      ASSERT_EQ(sources.row_pages(r)[page], pages[page]);
      continue;
    }
    ASSERT_EQ(left.first_position + num_left, position - end);
    ASSERT_EQ(decoder.row_tokens(left)[num_left], made.plan.row_tokens(row)[i]);
    ASSERT_EQ(decoder.row_pages(r)[(position - end) / made.page_size],
              pages[page]);
    ++num_left;
  }
  ASSERT_EQ(left.num_tokens, num_left);
  ASSERT_EQ(left.num_logits, row.num_logits);
  ASSERT_EQ(left.first_logits, row.first_logits);
  ASSERT_EQ(left.source_length, row.source_length);
  ASSERT_EQ(sources.row_pages(r).size() + decoder.row_pages(r).size(),
            pages.size());
}

TEST(CudaPlanSourcesTest, EachPositionIsTheSourcesOrTheDecoders) {
  int num_without_tokens = 0;
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    const PlanWithSources made = AnyPlanWithSources(seed);
    StepPlan decoder = made.plan;
    const CudaPlanSources sources = TakeSources(made.page_size, &decoder);
    int num_tokens = 0;
    for (size_t r = 0; r < made.plan.rows.size(); ++r) {
      ASSERT_NO_FATAL_FAILURE(ExpectRow(made, decoder, sources, r));
      ASSERT_EQ(decoder.rows[r].first_token, num_tokens);
      num_tokens += decoder.rows[r].num_tokens;
      num_without_tokens += decoder.rows[r].num_tokens == 0;
    }
    ASSERT_EQ(decoder.tokens.size(), num_tokens);
    ASSERT_EQ(decoder.num_logits, made.plan.num_logits);
    ASSERT_TRUE(decoder.sources.empty());
  }
  EXPECT_GT(num_without_tokens, 100);
}

TEST(CudaPlanSourcesTest, SourcesAreReadForRowsThatFeedThem) {
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    const PlanWithSources made = AnyPlanWithSources(seed);
    StepPlan decoder = made.plan;
    const CudaPlanSources sources = TakeSources(made.page_size, &decoder);
    ASSERT_EQ(sources.reads.size(), made.plan.sources.size());
    for (size_t i = 0; i < sources.reads.size(); ++i) {
      const CudaPlanSources::Read& read = sources.reads[i];
      const PlanRow& row = made.plan.rows[read.row];
      ASSERT_EQ(read.row, made.plan.sources[i].row);
      ASSERT_EQ(read.tokens, made.plan.sources[i].tokens);
      ASSERT_EQ(read.first_fed, row.first_position);
      ASSERT_EQ(read.end_fed, std::min(row.first_position + row.num_tokens,
                                       row.source_length));
    }
  }
}

TEST(CudaPlanSourcesTest, APlanWithoutSourcesIsLeftAsItIs) {
  StepPlan plan;
  plan.rows.push_back({.num_tokens = 2, .first_position = 5, .num_logits = 1});
  plan.tokens = {7, 8};
  plan.num_logits = 1;
  plan.page_indices = {PageId{3}};
  plan.page_indptr = {0, 1};
  const CudaPlanSources sources = TakeSources(16, &plan);
  EXPECT_TRUE(sources.reads.empty());
  EXPECT_TRUE(sources.row_pages(0).empty());
  EXPECT_EQ(plan.rows[0].first_position, 5);
  EXPECT_EQ(plan.tokens.size(), 2u);
  EXPECT_EQ(plan.row_pages(0).size(), 1u);
}

constexpr int kNullTable = 77;

// A source by itself, stored where the row feeds it.
void ExpectRead(const CudaSourceCall& call, const CudaAttentionRow& row,
                const CudaSourceRead& read) {
  ASSERT_EQ(row.num_queries, std::ssize(*read.tokens));
  ASSERT_EQ(row.max_positions, row.num_queries);
  ASSERT_TRUE(row.sees_all);
  for (int i = 0; i < row.num_queries; ++i) {
    const int at = row.first_query + i;
    const bool is_fed = i >= read.first_fed && i < read.end_fed;
    ASSERT_EQ(call.tokens[at], (*read.tokens)[i]);
    ASSERT_EQ(call.positions[at], i);
    ASSERT_EQ(call.token_tables[at], row.table);
    ASSERT_EQ(call.cross_tables[at], is_fed ? read.table : kNullTable);
    ASSERT_EQ(call.last_positions[at], row.num_queries - 1);
  }
}

// No two sources have a page of the encoder's in common.
void ExpectPages(const CudaSourceCall& call, int page_size, int most) {
  std::vector<bool> is_taken(most);
  for (const CudaAttentionRow& row : call.attention_rows) {
    const int64_t num_pages = NumPages(row.num_queries, page_size);
    ASSERT_LE(num_pages, call.stride);
    for (int64_t i = 0; i < num_pages; ++i) {
      const int page = call.tables.at(row.table * call.stride + i);
      ASSERT_LT(page, most);
      ASSERT_FALSE(is_taken[page]);
      is_taken[page] = true;
    }
  }
}

TEST(CudaSourceCallTest, SourcesAreReadWholeInCallsWithinTheBounds) {
  std::mt19937 random(3);
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  int num_calls = 0;
  for (int round = 0; round < 500; ++round) {
    const int page_size = 1 + below(5);
    const int max_tokens = 8 + below(60);
    const CudaCallBounds bounds = {
        .max_tokens = max_tokens,
        .max_source_pages = static_cast<int>(NumPages(max_tokens, page_size))};
    std::vector<CudaSourceRead> reads;
    for (int i = 1 + below(9); i > 0; --i) {
      const int length = 1 + below(max_tokens);
      std::vector<TokenId> tokens(length);
      for (TokenId& token : tokens) token = below(1000);
      const int first = below(length);
      reads.push_back(
          {.tokens = std::make_shared<const std::vector<TokenId>>(tokens),
           .table = i,
           .first_fed = first,
           .end_fed = first + 1 + below(length - first)});
    }
    for (std::span<const CudaSourceRead> left = reads; !left.empty();
         ++num_calls) {
      ASSERT_OK_AND_ASSIGN(const auto next,
                           NextSourceCall(left, bounds, page_size, kNullTable));
      const auto& [call, count] = next;
      ASSERT_GT(count, 0u);
      ASSERT_EQ(call.attention_rows.size(), count);
      ASSERT_LE(std::ssize(call.tokens), bounds.max_tokens);
      ASSERT_LE(std::ssize(call.tables), MaxSourceTableWords(bounds));
      for (size_t i = 0; i < count; ++i) {
        ASSERT_NO_FATAL_FAILURE(
            ExpectRead(call, call.attention_rows[i], left[i]));
      }
      ASSERT_NO_FATAL_FAILURE(
          ExpectPages(call, page_size, bounds.max_source_pages));
      left = left.subspan(count);
    }
  }
  EXPECT_GT(num_calls, 1000);
}

TEST(CudaSourceCallTest, ASourceThatFitsNoCallIsRefused) {
  const CudaSourceRead reads[] = {
      {.tokens = std::make_shared<const std::vector<TokenId>>(33)}};
  EXPECT_THAT(
      NextSourceCall(reads, {.max_tokens = 32, .max_source_pages = 2}, 16, 0)
          .status(),
      testing::StatusIs(absl::StatusCode::kResourceExhausted,
                        "a source of 33 tokens, a call has room for 32 on 2 "
                        "pages"));
}

}  // namespace
}  // namespace espalier
