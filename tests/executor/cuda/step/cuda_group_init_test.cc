// Which rows of a plan set a group, and whether they set its beams.
#include "executor/cuda/step/cuda_group_init.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/executor/plan_source.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::PlanSource;
using testing::StatusIs;

constexpr int kPageSize = 4;

// A plan whose last two rows belong to a selection for two slots.
class CudaGroupInitTest : public ::testing::Test {
 protected:
  void Feed(const std::vector<TokenId>& tokens, int num_logits) {
    source_.AddRow(tokens, num_logits);
  }
  PlanSelection& SelectFrom(int num_rows) {
    return source_.AddSelection(RequestId{1}, num_rows, /*num_slots=*/2,
                                std::make_shared<const SelectionParams>());
  }
  absl::StatusOr<CudaGroupInit> Find() const {
    return CudaGroupInit::Find(source_.plan, source_.plan.selections[0]);
  }
  bool FeedsBeams() const {
    const auto rows = Find();
    EXPECT_OK(rows.status());
    return rows.ok() && rows->feeds_beams();
  }

  PlanSource source_{kPageSize};
};

TEST_F(CudaGroupInitTest, TheyAreThoseThatItsRowsOfLogitsAreOf) {
  Feed({5, 6, 7}, 3);
  Feed({5, 6}, 0);
  Feed({8, 9}, 1);
  Feed({5, 6, 7, 8}, 0);
  Feed({4, 3}, 1);
  SelectFrom(2);
  ASSERT_OK_AND_ASSIGN(const CudaGroupInit rows, Find());
  EXPECT_THAT(rows.rows(), ElementsAre(2, 4));
}

TEST_F(CudaGroupInitTest, OneGeneratedTokenForEachSlotSetsBeams) {
  Feed({8}, 1);
  Feed({9}, 1);
  SelectFrom(2).num_generated = 1;
  EXPECT_TRUE(FeedsBeams());
}

TEST_F(CudaGroupInitTest, PromptsSetNoBeams) {
  Feed({8}, 1);
  Feed({9}, 1);
  SelectFrom(2);
  EXPECT_FALSE(FeedsBeams());
}

TEST_F(CudaGroupInitTest, FewerRowsThanSlotsSetNoBeams) {
  Feed({8}, 1);
  SelectFrom(1).num_generated = 1;
  EXPECT_FALSE(FeedsBeams());
}

TEST_F(CudaGroupInitTest, RowsThatAreFedAgainSetNoBeams) {
  Feed({7, 8}, 1);
  Feed({7, 9}, 1);
  SelectFrom(2).num_generated = 1;
  EXPECT_FALSE(FeedsBeams());
}

TEST_F(CudaGroupInitTest, ATokenBeforeARowsLastIsRefused) {
  Feed({5, 6}, 2);
  SelectFrom(2);
  EXPECT_THAT(Find(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("row 0 of logits")));
}

TEST_F(CudaGroupInitTest, RowsThatEndApartAreRefused) {
  Feed({5, 6}, 1);
  Feed({7, 8, 9}, 1);
  SelectFrom(2);
  EXPECT_THAT(Find(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("at positions 1 and 2")));
}

// Samples that verify drafts have a row of logits for each token.
TEST_F(CudaGroupInitTest, RowsWithDraftsSetNoBeamsAndMayEndApart) {
  Feed({5, 6}, 2);
  Feed({7, 8, 9}, 3);
  PlanSelection& selection = SelectFrom(2);
  selection.num_generated = 1;
  selection.first_logits = 0;
  selection.Choose<DrawSelection>().drafts.tokens = {{6}, {8, 9}};
  EXPECT_FALSE(FeedsBeams());
}

TEST_F(CudaGroupInitTest, SamplesOfDifferentLengthsSetNoBeams) {
  Feed({8}, 1);
  Feed({9}, 1);
  PlanSelection& selection = SelectFrom(2);
  selection.num_generated = 1;
  selection.Choose<DrawSelection>().row_num_generated = {1, 3};
  EXPECT_FALSE(FeedsBeams());
}

// Three paths of two beams, of one and two tokens and of none.
TEST_F(CudaGroupInitTest, EachPathOfBeamsIsARowWithASlot) {
  Feed({8, 9}, 2);
  Feed({8, 9, 4}, 3);
  Feed({7}, 1);
  PlanSelection& selection = SelectFrom(2);
  selection.first_logits = 0;
  selection.Choose<BeamSelection>().paths = {.ranks = {0, 0, 1},
                                             .drafts = {{9}, {9, 4}, {}}};
  ASSERT_OK_AND_ASSIGN(const CudaGroupInit rows, Find());
  EXPECT_THAT(rows.rows(), ElementsAre(0, 1, 2));
  EXPECT_FALSE(rows.feeds_beams());
  EXPECT_EQ(NumSlotsOf(selection), 3);
  EXPECT_EQ(SlotOf(selection, 2), 2);
}

}  // namespace
}  // namespace espalier
