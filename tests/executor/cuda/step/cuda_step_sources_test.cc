// Steps built from plans of a model with an encoder: positions of a group's
// source and of the decoder's tokens. Needs no device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "executor/cuda/step/cuda_step_builder.h"
#include "tests/executor/cuda/step_builder_fixture.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

using ::testing::ElementsAre;

constexpr int kSourcesPageSize = 4;
constexpr CudaStepLimits kSourcesLimits = {.max_rows = 32,
                                           .max_tokens = 64,
                                           .num_slots = 64,
                                           .table_stride = 6,
                                           .source_stride = 5,
                                           .num_pages = 100,
                                           .max_candidates = 500,
                                           .max_eos_token_ids = 32,
                                           .max_best_tokens = 64,
                                           .max_items = 512,
                                           .max_partials = 512};

class CudaStepSourcesTest : public StepBuilderFixture {
 protected:
  CudaStepSourcesTest()
      : StepBuilderFixture(kSourcesLimits, kSourcesPageSize) {}

  // Adds a source of `source_length` tokens, and the decoder's first token.
  PlanSelection AddPrompt(int request, int source_length, int num_slots) {
    source_.AddRow(std::vector<TokenId>(source_length, 7),
                   std::vector<TokenId>{1}, 1);
    PlanSelection& selection = source_.AddSelection(
        RequestId{request}, 1, num_slots, PlanSelection::DefaultParams());
    selection.choice = BeamSelection{.num_candidates = 4};
    return selection;
  }

  CudaStep Build() {
    StepPlan plan = source_.Take();
    CudaDelta delta(memory_->words());
    auto step = builder_->Build(plan, absl::OkStatus(), &delta);
    EXPECT_OK(step.status());
    for (const CudaStagedWrite& write : delta.segments()) {
      for (int i = 0; i < write.count; ++i) {
        words_[write.target + i] = delta.payload()[write.source + i];
      }
    }
    return step.ok() ? *std::move(step) : CudaStep();
  }

  // Returns the `count` words last sent to `array`; -1 where none was sent.
  std::vector<int> Sent(const int* array, int count) const {
    std::vector<int> values;
    for (int i = 0; i < count; ++i) {
      const auto word =
          words_.find(static_cast<int>(array - memory_->words()) + i);
      values.push_back(word == words_.end() ? -1 : word->second);
    }
    return values;
  }

  std::map<int, int> words_;  // device index -> last word sent
};

// Pages 0 to 2 are the first source's, 3 is its decoder's; 4 and 5.
TEST_F(CudaStepSourcesTest, DecodersAndSourcesHaveTablesAndPositionsApart) {
  AddPrompt(1, 9, 2);
  AddPrompt(2, 4, 3);
  const CudaStep step = Build();
  const CudaBeamState& state = memory_->arrays().state;
  EXPECT_THAT(Sent(memory_->table(0), 2), ElementsAre(3, -1));
  EXPECT_THAT(Sent(memory_->source_table(0), 4), ElementsAre(0, 1, 2, -1));
  EXPECT_THAT(Sent(memory_->table(2), 2), ElementsAre(5, -1));
  EXPECT_THAT(Sent(memory_->source_table(2), 2), ElementsAre(4, -1));
  EXPECT_THAT(Sent(state.positions, 3), ElementsAre(0, -1, 0));
  EXPECT_THAT(Sent(state.batch_positions, 2), ElementsAre(0, 0));
  EXPECT_THAT(Sent(state.batch_tokens, 2), ElementsAre(1, 1));
  // Its history is the decoder's.
  EXPECT_THAT(Sent(state.page_tokens, 24),
              ElementsAre(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 1, -1,
                          -1, -1, -1, -1, -1, -1, 1, -1, -1, -1));
  EXPECT_THAT(Sent(memory_->arrays().cross_positions, 2), ElementsAre(8, 3));
  EXPECT_EQ(step.shape.num_tokens, 2);
  EXPECT_FALSE(step.is_replayable);
  ASSERT_EQ(step.sources.size(), 2u);
  EXPECT_EQ(step.sources[0].table, 0);
  EXPECT_EQ(step.sources[0].input->length(), 9);
  EXPECT_EQ(step.sources[1].table, 2);
  EXPECT_EQ(step.sources[1].input->length(), 4);
}

// Nothing of the source is sent, and work lists for as long as groups stay.
TEST_F(CudaStepSourcesTest, AGroupGoesOnAsThoseWithoutASource) {
  const PlanSelection selection = AddPrompt(1, 9, 2);
  Build();
  source_.Continue(selection);
  const CudaStep first = Build();
  EXPECT_TRUE(first.is_replayable);
  EXPECT_TRUE(first.sources.empty());
  EXPECT_THAT(Sent(memory_->arrays().cross_positions, 2), ElementsAre(8, 8));
  words_.clear();
  source_.Continue(selection);
  EXPECT_TRUE(Build().is_replayable);
  EXPECT_TRUE(words_.empty());
}

// As chunks of prompts have that end in a later step.
TEST_F(CudaStepSourcesTest, RowsOfNobodyHaveASourceInTheirTable) {
  source_.AddRow(std::vector<TokenId>(6, 7), std::vector<TokenId>{1, 2}, 0);
  const CudaStep step = Build();
  const int table = memory_->row_table(0);
  EXPECT_THAT(Sent(memory_->table(table), 2), ElementsAre(2, -1));
  EXPECT_THAT(Sent(memory_->source_table(table), 3), ElementsAre(0, 1, -1));
  EXPECT_THAT(Sent(memory_->arrays().token_tables, 2),
              ElementsAre(table, table));
  ASSERT_EQ(step.sources.size(), 1u);
  EXPECT_EQ(step.sources[0].table, table);
}

// The last three tokens of the second row are aligned.
TEST_F(CudaStepSourcesTest, AlignmentsNameTokensTablesAndScores) {
  AlignmentQuery query = {
      .heads = {{0, 0}, {1, 1}}, .num_positions = 5, .num_text_tokens = 3};
  source_.AddRow(std::vector<TokenId>(9, 7), std::vector<TokenId>{1, 2, 3}, 0);
  const int row = source_.AddRow(std::vector<TokenId>(6, 7),
                                 std::vector<TokenId>{1, 2, 4, 1}, 3);
  const int first_logits = source_.plan.rows[row].first_logits;
  source_.plan.scorings.push_back(
      {.request = RequestId{5},
       .first_logits = first_logits,
       .tokens = {4, 1},
       .alignment = std::make_shared<const AlignmentQuery>(query)});
  query.num_positions = 6;
  source_.plan.scorings.push_back(
      {.request = RequestId{5},
       .first_logits = first_logits + 2,
       .tokens = {2},
       .alignment = std::make_shared<const AlignmentQuery>(query)});
  const StepPlan plan = source_.plan;  // which a step points into
  const CudaStep step = Build();
  ASSERT_EQ(step.aligned.size(), 2u);
  EXPECT_EQ(step.aligned[0].first_token, 4);
  EXPECT_EQ(step.aligned[0].num_tokens, 2);
  EXPECT_EQ(step.aligned[0].source_table, memory_->row_table(1));
  EXPECT_EQ(step.aligned[0].query, plan.scorings[0].alignment.get());
  EXPECT_EQ(step.aligned[1].first_token, 6);
  EXPECT_EQ(step.scorings[0].first_score, 0);
  EXPECT_EQ(step.scorings[0].num_scores, 2 * 2 * 5);
  EXPECT_EQ(step.scorings[1].first_score, 2 * 2 * 5);
  EXPECT_EQ(step.scorings[1].num_scores, 2 * 6);
  EXPECT_EQ(step.num_scores, 2 * 2 * 5 + 2 * 6);
  // Row of logits, token and end of the row.
  EXPECT_THAT(
      Sent(reinterpret_cast<const int*>(memory_->arrays().log_probs.asked), 9),
      ElementsAre(0, 4, 0, 1, 1, 3, 2, 2, 3));
}

TEST_F(CudaStepSourcesTest, AnAlignmentLongerThanItsSourceIsRefused) {
  const int row =
      source_.AddRow(std::vector<TokenId>(6, 7), std::vector<TokenId>{1, 2}, 1);
  source_.plan.scorings.push_back(
      {.request = RequestId{5},
       .first_logits = source_.plan.rows[row].first_logits,
       .tokens = {4},
       .alignment = std::make_shared<const AlignmentQuery>(AlignmentQuery{
           .heads = {{0, 0}}, .num_positions = 7, .num_text_tokens = 3})});
  StepPlan plan = source_.Take();
  CudaDelta delta(memory_->words());
  EXPECT_THAT(builder_->Build(plan, absl::OkStatus(), &delta).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "an alignment is of 7 positions, the row's source has "
                       "6"));
}

TEST_F(CudaStepSourcesTest, ASourceThatNoTableHasRoomForIsRefused) {
  AddPrompt(1, 21, 1);
  StepPlan plan = source_.Take();
  CudaDelta delta(memory_->words());
  EXPECT_THAT(builder_->Build(plan, absl::OkStatus(), &delta).status(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "a row's source has 6 pages, there is room for 5"));
}

}  // namespace
}  // namespace espalier::testing
