// Input of a run of a draft model: by hand, and for any sequences.
#include "executor/cuda/draft/cuda_draft_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace espalier {
namespace {

using ::testing::ElementsAre;

constexpr CudaDraftLimits kDraftLimits = {.max_rows = 8,
                                          .max_row_tokens = 2,
                                          .table_stride = 10,
                                          .max_edits = 64,
                                          .max_items = 100,
                                          .max_partials = 100};

DraftSequence SequenceOf(ScoreProcessors processors, int num_generated,
                         int num_tokens) {
  auto params = std::make_shared<SelectionParams>();
  params->verify_mode = VerifyMode::kRejection;
  params->processors = std::move(processors);
  return {.request = RequestId{1},
          .sample = 3,
          .prompt = std::make_shared<const std::vector<TokenId>>(4, 5),
          .generated = std::vector<TokenId>(num_generated, 7),
          .num_tokens = num_tokens,
          .params = std::move(params)};
}

ScoreProcessors Suppress(std::vector<TokenId> tokens) {
  ScoreProcessors processors;
  processors.suppress_tokens = std::move(tokens);
  return processors;
}

TEST(CudaDraftBatchTest, RowsFeedTheirLastTokensAndAreOfNobodyAfter) {
  CudaDraftBatch batch(kDraftLimits, 16, 100);
  batch.Add(SequenceOf({}, 2, 3), std::vector<TokenId>{7}, 5, -1);
  batch.Add(SequenceOf({}, 4, 5), std::vector<TokenId>{6, 7}, 6, 20);
  batch.Pad(4);
  EXPECT_TRUE(batch.feeds_two);
  EXPECT_TRUE(batch.keeps_logits);
  EXPECT_FALSE(batch.has_edits());
  EXPECT_EQ(batch.num_steps, 5);
  EXPECT_EQ(batch.num_sequences, 2);
  EXPECT_THAT(batch.first.tokens, ElementsAre(0, 7, 6, 7, 0, 0, 0, 0));
  EXPECT_THAT(batch.first.positions, ElementsAre(0, 5, 6, 7, 0, 0, 0, 0));
  EXPECT_THAT(batch.first.token_tables, ElementsAre(8, 0, 1, 1, 8, 8, 8, 8));
  EXPECT_THAT(batch.first_logits_tokens, ElementsAre(1, 3, 5, 7));
  EXPECT_EQ(batch.first.attention_rows[0].first_query, 1);
  EXPECT_EQ(batch.first.attention_rows[1].num_queries, 2);
  EXPECT_THAT(batch.next.tokens, ElementsAre(7, 7, 0, 0));
  EXPECT_THAT(batch.next.positions, ElementsAre(5, 7, 0, 0));
  EXPECT_THAT(batch.next.token_tables, ElementsAre(0, 1, 8, 8));
  EXPECT_THAT(batch.row_params, ElementsAre(0, 1, -1, -1));
  EXPECT_EQ(batch.draws[1].position, 4u);
  EXPECT_EQ(batch.draws[1].sample, 3u);
  EXPECT_EQ(batch.draws[1].purpose, RandomPurpose::kDraft);
  EXPECT_THAT(batch.kept_rows, ElementsAre(-1, 20, -1, -1));
  EXPECT_EQ(batch.rows[2].num_tokens, 0);
}

// The row's start is known only on the device, so it has room for both cases:
// the token alone, or the last token of the previous draft as well.
TEST(CudaDraftBatchTest, RowsThatDoNotWaitHaveRoomForWhateverIsAccepted) {
  CudaDraftBatch batch(kDraftLimits, 16, 100);
  DraftSequence sequence = SequenceOf({}, 2, 3);
  const auto token = std::make_shared<const TokenId>(7);
  VerifiedDraft verified;
  sequence.verified_before = PendingDraft(token, 1, 4, &verified);
  batch.Add(sequence, std::vector<TokenId>{0}, 58, -1);
  batch.Pad(2);
  EXPECT_TRUE(batch.feeds_two);
  EXPECT_THAT(batch.first.tokens, ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(batch.first.positions, ElementsAre(0, 58, 0, 0));
  EXPECT_THAT(batch.first.token_tables, ElementsAre(8, 0, 8, 8));
  EXPECT_EQ(batch.first.attention_rows[0].first_query, 0);
  EXPECT_EQ(batch.first.attention_rows[0].num_queries, 2);
  EXPECT_EQ(batch.first.attention_rows[0].max_positions, 64);
  // 58 and 4 accepted, and two more that are fed.
  EXPECT_EQ(batch.next.attention_rows[0].max_positions, 128);
  EXPECT_EQ(batch.draws[0].position, 3u);
}

// Work lists hold until a length passes a multiple of 64.
TEST(CudaDraftBatchTest, AttentionIsPlannedForAllOfADraft) {
  for (const auto& [position, bound] :
       std::vector<std::pair<int, int>>{{60, 64}, {61, 128}, {155, 160}}) {
    CudaDraftBatch batch(kDraftLimits, 16, 100);
    batch.Add(SequenceOf({}, 2, 4), std::vector<TokenId>{7}, position, -1);
    EXPECT_EQ(batch.next.attention_rows[0].max_positions, bound) << position;
  }
}

// The EOS id is banned for two tokens more, and then no more.
TEST(CudaDraftBatchTest, EditsChangeWhereTheLeastLengthIsReached) {
  ScoreProcessors processors = Suppress({9});
  processors.eos_token_ids = {2};
  processors.min_new_tokens = 5;
  CudaDraftBatch batch(kDraftLimits, 16, 100);
  batch.Add(SequenceOf(processors, 3, 4), std::vector<TokenId>{7}, 5, -1);
  batch.Add(SequenceOf(processors, 3, 2), std::vector<TokenId>{7}, 5, -1);
  batch.Add(SequenceOf(processors, 5, 4), std::vector<TokenId>{7}, 5, -1);
  EXPECT_TRUE(batch.has_edits());
  EXPECT_EQ(batch.rows[0].first_with_later_edits, 2);
  EXPECT_EQ(batch.row_edits[0].end - batch.row_edits[0].begin, 2);
  const CudaRowEdits& later = batch.rows[0].later_edits;
  ASSERT_EQ(later.end - later.begin, 1);
  EXPECT_EQ(batch.edits[later.begin].token, 9);
  EXPECT_EQ(batch.rows[1].first_with_later_edits, -1);
  EXPECT_EQ(batch.rows[2].first_with_later_edits, -1);
  EXPECT_EQ(batch.row_edits[2].end - batch.row_edits[2].begin, 1);
}

TEST(CudaDraftBatchTest, WhatFollowsFromDraftedTokensIsLeftToTheHost) {
  EXPECT_TRUE(CanDraftOnDevice(SequenceOf({}, 2, 4), kDraftLimits, 100));
  // Twice four edits for each of eight rows, and no more.
  EXPECT_TRUE(CanDraftOnDevice(SequenceOf(Suppress({1, 2, 3, 4}), 2, 4),
                               kDraftLimits, 100));
  EXPECT_FALSE(CanDraftOnDevice(SequenceOf(Suppress({1, 2, 3, 4, 5}), 2, 4),
                                kDraftLimits, 100));
  ScoreProcessors penalty;
  penalty.frequency_penalty = 1;
  EXPECT_FALSE(CanDraftOnDevice(SequenceOf(penalty, 2, 4), kDraftLimits, 100));
  ScoreProcessors words;
  words.bad_words = {{1, 2}};
  EXPECT_FALSE(CanDraftOnDevice(SequenceOf(words, 2, 4), kDraftLimits, 100));
  ScoreProcessors forced;
  forced.forced_last_tokens = {2};
  forced.max_new_tokens = 9;
  EXPECT_FALSE(CanDraftOnDevice(SequenceOf(forced, 2, 4), kDraftLimits, 100));
  DraftSequence beam = SequenceOf({}, 2, 4);
  beam.search = std::make_shared<const DraftedSearch>();
  EXPECT_FALSE(CanDraftOnDevice(beam, kDraftLimits, 100));
}

}  // namespace
}  // namespace espalier
