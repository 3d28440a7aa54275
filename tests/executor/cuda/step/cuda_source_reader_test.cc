// In which calls the encoder reads the sources of a step.
#include "executor/cuda/step/cuda_source_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "base/page_count.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

constexpr int kNullTable = 77;

// A source by itself, stored from the position on that is not stored yet.
void ExpectRead(const CudaSourceCall& call, const CudaAttentionRow& row,
                const CudaSourceRead& read) {
  ASSERT_EQ(row.num_queries, read.input->length());
  ASSERT_EQ(row.max_positions, row.num_queries);
  ASSERT_TRUE(row.sees_all);
  for (int i = 0; i < row.num_queries; ++i) {
    const int at = row.first_query + i;
    if (read.input->features() == nullptr) {
      ASSERT_EQ(call.tokens[at], read.input->tokens()[i]);
    }
    ASSERT_EQ(call.positions[at], i);
    ASSERT_EQ(call.token_tables[at], row.table);
    ASSERT_EQ(call.cross_tables[at],
              i < read.num_stored ? kNullTable : read.table);
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
      reads.push_back({.input = std::make_shared<const EncoderInput>(tokens),
                       .table = i,
                       .num_stored = below(length)});
    }
    for (std::span<const CudaSourceRead> left = reads; !left.empty();
         ++num_calls) {
      ASSERT_OK_AND_ASSIGN(const auto next,
                           NextSourceCall(left, bounds, page_size, kNullTable));
      const auto& [call, count] = next;
      ASSERT_GT(count, 0u);
      ASSERT_EQ(call.attention_rows.size(), count);
      ASSERT_EQ(std::ssize(call.tokens), call.num_tokens());
      ASSERT_TRUE(call.features.empty());
      ASSERT_LE(call.num_tokens(), bounds.max_tokens);
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

// Frames are no tokens: 20 of them are 10 positions.
TEST(CudaSourceCallTest, SourcesOfFeaturesAreTheirPositions) {
  const CudaCallBounds bounds = {.max_tokens = 35, .max_source_pages = 9};
  std::vector<CudaSourceRead> reads;
  for (int i = 0; i < 5; ++i) {
    const FeatureMatrix features = {.shape = {.num_rows = 20, .num_cols = 4},
                                    .values = std::vector<float>(80, i)};
    reads.push_back({.input = std::make_shared<const EncoderInput>(
                         std::make_shared<const FeatureMatrix>(features), 10),
                     .table = i,
                     .num_stored = 2 * i});
  }
  std::span<const CudaSourceRead> left = reads;
  for (const size_t expected : {3, 2}) {
    ASSERT_OK_AND_ASSIGN(const auto next,
                         NextSourceCall(left, bounds, 4, kNullTable));
    const auto& [call, count] = next;
    ASSERT_EQ(count, expected);
    EXPECT_EQ(call.num_tokens(), 10 * std::ssize(call.features));
    EXPECT_TRUE(call.tokens.empty());
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(call.features[i], left[i].input);
      ASSERT_NO_FATAL_FAILURE(
          ExpectRead(call, call.attention_rows[i], left[i]));
    }
    ASSERT_NO_FATAL_FAILURE(ExpectPages(call, 4, bounds.max_source_pages));
    left = left.subspan(count);
  }
  EXPECT_TRUE(left.empty());
}

TEST(CudaSourceCallTest, ASourceThatFitsNoCallIsRefused) {
  const CudaSourceRead reads[] = {
      {.input =
           std::make_shared<const EncoderInput>(std::vector<TokenId>(33))}};
  EXPECT_THAT(
      NextSourceCall(reads, {.max_tokens = 32, .max_source_pages = 2}, 16, 0)
          .status(),
      testing::StatusIs(absl::StatusCode::kResourceExhausted,
                        "a source of 33 positions, a call has room for 32 on "
                        "2 pages"));
}

}  // namespace
}  // namespace espalier
